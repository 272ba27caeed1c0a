// The pairs (i, i + d / 2) of every row turned by an angle of the row's position; turns [positions, d / 2] holds cosine
// and sine, computed on the host in float64, which WGSL does not have.

struct Sizes {
    count: u32, // pairs
    positions: u32,
    half: u32,
    first_row: u32,
    direction: f32, // 1 forward, -1 backward
}

@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> turns: array<vec2f>;
@group(0) @binding(3) var<storage, read_write> rotated: array<f32>;

const THREADS = 256u;

@compute @workgroup_size(THREADS)
fn rope(
    @builtin(local_invocation_index) thread: u32,
    @builtin(workgroup_id) group: vec3u,
    @builtin(num_workgroups) groups: vec3u,
) {
    let pair = (group.x + group.y * groups.x) * THREADS + thread;
    if (pair >= sizes.count) {
        return;
    }
    let row = pair / sizes.half;
    let i = pair % sizes.half;
    let turn = turns[((sizes.first_row + row) % sizes.positions) * sizes.half + i];
    let low = row * 2u * sizes.half + i;
    let high = low + sizes.half;
    let sine = sizes.direction * turn.y;
    rotated[low] = x[low] * turn.x - x[high] * sine;
    rotated[high] = x[high] * turn.x + x[low] * sine;
}
