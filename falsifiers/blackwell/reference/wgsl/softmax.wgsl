// Causal softmax of rows, one workgroup a row, and its backward. Row r is query r % keys and sees keys up to its own.

struct Sizes {
    rows: u32,
    keys: u32,
    first_row: u32,
    scale: f32,
}

@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> upstream: array<f32>;
@group(0) @binding(3) var<storage, read_write> result: array<f32>;

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
    workgroupBarrier();
    return sum;
}

fn largest(thread: u32, value: f32) -> f32 {
    partial[thread] = value;
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {
        if (thread < half) {
            partial[thread] = max(partial[thread], partial[thread + half]);
        }
        workgroupBarrier();
    }
    let most = partial[0];
    workgroupBarrier();
    return most;
}

@compute @workgroup_size(THREADS)
fn causal_softmax(
    @builtin(local_invocation_index) thread: u32,
    @builtin(workgroup_id) group: vec3u,
    @builtin(num_workgroups) groups: vec3u,
) {
    let row = group.x + group.y * groups.x;
    if (row >= sizes.rows) {
        return;
    }
    let start = row * sizes.keys;
    let seen = (sizes.first_row + row) % sizes.keys + 1u;
    var most = -3.4028234e38;
    for (var i = thread; i < seen; i += THREADS) {
        most = max(most, sizes.scale * x[start + i]);
    }
    most = largest(thread, most);
    var sum = 0.0;
    for (var i = thread; i < seen; i += THREADS) {
        sum += exp(sizes.scale * x[start + i] - most);
    }
    sum = total(thread, sum);
    for (var i = thread; i < sizes.keys; i += THREADS) {
        var probability = 0.0;
        if (i < seen) {
            probability = exp(sizes.scale * x[start + i] - most) / sum;
        }
        result[start + i] = probability;
    }
}

// x holds the probabilities: scale p (g - sum(p g)).
@compute @workgroup_size(THREADS)
fn causal_softmax_backward(
    @builtin(local_invocation_index) thread: u32,
    @builtin(workgroup_id) group: vec3u,
    @builtin(num_workgroups) groups: vec3u,
) {
    let row = group.x + group.y * groups.x;
    if (row >= sizes.rows) {
        return;
    }
    let start = row * sizes.keys;
    var along = 0.0;
    for (var i = thread; i < sizes.keys; i += THREADS) {
        along += x[start + i] * upstream[start + i];
    }
    along = total(thread, along);
    for (var i = thread; i < sizes.keys; i += THREADS) {
        result[start + i] = sizes.scale * x[start + i] * (upstream[start + i] - along);
    }
}
