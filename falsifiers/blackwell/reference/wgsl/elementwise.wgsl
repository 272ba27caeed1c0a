// Operations on single elements: the residual sum, the bias, and the gate of the feed-forward part.

struct Sizes {
    count: u32,
    columns: u32, // of a row, for what is repeated in every row
}

@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read> upstream: array<f32>;
@group(0) @binding(4) var<storage, read_write> first: array<f32>;
@group(0) @binding(5) var<storage, read_write> second: array<f32>;

const THREADS = 256u;

fn element(thread: u32, group: vec3u, groups: vec3u) -> u32 {
    return (group.x + group.y * groups.x) * THREADS + thread;
}

fn sigmoid(x: f32) -> f32 {
    return 1.0 / (1.0 + exp(-x));
}

@compute @workgroup_size(THREADS)
fn add(
    @builtin(local_invocation_index) thread: u32,
    @builtin(workgroup_id) group: vec3u,
    @builtin(num_workgroups) groups: vec3u,
) {
    let i = element(thread, group, groups);
    if (i < sizes.count) {
        first[i] = a[i] + b[i];
    }
}

@compute @workgroup_size(THREADS)
fn add_row(
    @builtin(local_invocation_index) thread: u32,
    @builtin(workgroup_id) group: vec3u,
    @builtin(num_workgroups) groups: vec3u,
) {
    let i = element(thread, group, groups);
    if (i < sizes.count) {
        first[i] = a[i] + b[i % sizes.columns];
    }
}

@compute @workgroup_size(THREADS)
fn silu_gate(
    @builtin(local_invocation_index) thread: u32,
    @builtin(workgroup_id) group: vec3u,
    @builtin(num_workgroups) groups: vec3u,
) {
    let i = element(thread, group, groups);
    if (i < sizes.count) {
        first[i] = a[i] * sigmoid(a[i]) * b[i];
    }
}

// a is the gate, b is up; the derivative of z s(z) is s(z) (1 + z (1 - s(z))).
@compute @workgroup_size(THREADS)
fn silu_gate_backward(
    @builtin(local_invocation_index) thread: u32,
    @builtin(workgroup_id) group: vec3u,
    @builtin(num_workgroups) groups: vec3u,
) {
    let i = element(thread, group, groups);
    if (i < sizes.count) {
        let s = sigmoid(a[i]);
        first[i] = upstream[i] * b[i] * s * (1.0 + a[i] * (1.0 - s));
        second[i] = upstream[i] * a[i] * s;
    }
}
