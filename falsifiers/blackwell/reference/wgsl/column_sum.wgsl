// The sum over rows of x [rows, columns]: gradients of biases and of norms, and products that were split along k.
//
// A workgroup takes 32 columns; 8 threads a column each sum every eighth row.

struct Sizes {
    rows: u32,
    columns: u32,
}

@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> sums: array<f32>;

const ACROSS = 32u;
const DOWN = 8u;
var<workgroup> partial: array<f32, 256>;

@compute @workgroup_size(256)
fn column_sum(
    @builtin(local_invocation_index) thread: u32,
    @builtin(workgroup_id) group: vec3u,
    @builtin(num_workgroups) groups: vec3u,
) {
    let column = (group.x + group.y * groups.x) * ACROSS + thread % ACROSS;
    var sum = 0.0;
    if (column < sizes.columns) {
        for (var row = thread / ACROSS; row < sizes.rows; row += DOWN) {
            sum += x[row * sizes.columns + column];
        }
    }
    partial[thread] = sum;
    workgroupBarrier();
    if (thread < ACROSS && column < sizes.columns) {
        for (var i = 1u; i < DOWN; i++) {
            sum += partial[thread + i * ACROSS];
        }
        sums[column] = sum;
    }
}
