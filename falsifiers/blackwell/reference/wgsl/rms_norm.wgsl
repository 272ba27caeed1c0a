// RMSNorm of rows, one workgroup a row: x / sqrt(mean(x^2) + eps) * weight, and its backward.

struct Sizes {
    rows: u32,
    columns: u32,
    eps: f32,
}

@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read> upstream: array<f32>;
@group(0) @binding(4) var<storage, read_write> first: array<f32>;
@group(0) @binding(5) var<storage, read_write> second: array<f32>;

const THREADS = 128u;
var<workgroup> partial: array<f32, THREADS>;

fn total(thread: u32, value: f32) -> f32 {
    partial[thread] = value;
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {
        if (thread < half) {
            partial[thread] += partial[thread + half];
        }
        workgroupBarrier();
    }
    let sum = partial[0];
    workgroupBarrier(); // all must read this sum before the next one begins
    return sum;
}

fn inverse_rms(thread: u32, start: u32) -> f32 {
    var squares = 0.0;
    for (var i = thread; i < sizes.columns; i += THREADS) {
        squares += x[start + i] * x[start + i];
    }
    return inverseSqrt(total(thread, squares) / f32(sizes.columns) + sizes.eps);
}

@compute @workgroup_size(THREADS)
fn rms_norm(
    @builtin(local_invocation_index) thread: u32,
    @builtin(workgroup_id) group: vec3u,
    @builtin(num_workgroups) groups: vec3u,
) {
    let row = group.x + group.y * groups.x;
    if (row >= sizes.rows) {
        return;
    }
    let start = row * sizes.columns;
    let inverse = inverse_rms(thread, start);
    for (var i = thread; i < sizes.columns; i += THREADS) {
        first[start + i] = x[start + i] * inverse * weight[i];
    }
}

// first is the gradient of x; second holds what each row adds to the gradient of weight.
@compute @workgroup_size(THREADS)
fn rms_norm_backward(
    @builtin(local_invocation_index) thread: u32,
    @builtin(workgroup_id) group: vec3u,
    @builtin(num_workgroups) groups: vec3u,
) {
    let row = group.x + group.y * groups.x;
    if (row >= sizes.rows) {
        return;
    }
    let start = row * sizes.columns;
    let inverse = inverse_rms(thread, start);
    var along = 0.0;
    for (var i = thread; i < sizes.columns; i += THREADS) {
        along += upstream[start + i] * weight[i] * x[start + i] * inverse;
    }
    let mean = total(thread, along) / f32(sizes.columns);
    for (var i = thread; i < sizes.columns; i += THREADS) {
        let normed = x[start + i] * inverse;
        first[start + i] = (upstream[start + i] * weight[i] - normed * mean) * inverse;
        second[start + i] = upstream[start + i] * normed;
    }
}
