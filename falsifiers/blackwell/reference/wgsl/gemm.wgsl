// c[batch] = op(a[batch]) op(b[batch]), in float32; op transposes on request.
//
// A workgroup of COLUMNS x ROWS threads computes a tile of 8 ROWS x 8 COLUMNS elements, each thread 8 x 8 of them in
// registers. Of both operands DEPTH steps along k lie in shared memory, k outermost. A thread owns two quads of rows
// and two of columns, each pair half a tile apart: neighbouring threads read neighbouring quads, so that no two of them
// wait for one bank. Rows of shared memory are one quad longer than the tile, so that transposed stores spread too.
// gemm_aligned.wgsl or gemm_ragged.wgsl stands before this text and says how quads are loaded and written.

struct Sizes {
    m: u32,
    n: u32,
    k: u32,
    pitch_a: u32, // elements between two stored rows
    pitch_b: u32,
    batch_a: u32, // elements between two matrices
    batch_b: u32,
    batches: u32,
}

@group(0) @binding(0) var<uniform> sizes: Sizes;

override TRANSPOSE_A: bool = false; // a is stored [k, m]
override TRANSPOSE_B: bool = false; // b is stored [n, k]
override ROWS: u32 = 16u;
override COLUMNS: u32 = 16u;
override DEPTH: u32 = 16u;
override THREADS: u32 = ROWS * COLUMNS;
override PITCH_A: u32 = 2u * ROWS + 1u; // of shared memory, in quads
override PITCH_B: u32 = 2u * COLUMNS + 1u;
override QUADS_A: u32 = DEPTH * PITCH_A;
override QUADS_B: u32 = DEPTH * PITCH_B;

var<workgroup> tile_a: array<vec4f, QUADS_A>;
var<workgroup> tile_b: array<vec4f, QUADS_B>;

fn fetch_a(batch: u32, thread: u32, first_row: u32, first_k: u32) {
    if (TRANSPOSE_A) {
        for (var i = thread; i < DEPTH * 2u * ROWS; i += THREADS) {
            let k = i / (2u * ROWS);
            let quad = i % (2u * ROWS);
            tile_a[k * PITCH_A + quad] = quad_a(batch, first_k + k, first_row + 4u * quad);
        }
    } else {
        for (var i = thread; i < DEPTH * 2u * ROWS; i += THREADS) {
            let row = i / (DEPTH / 4u);
            let k = 4u * (i % (DEPTH / 4u));
            let quad = quad_a(batch, first_row + row, first_k + k);
            let place = k * PITCH_A + row / 4u;
            tile_a[place][row % 4u] = quad.x;
            tile_a[place + PITCH_A][row % 4u] = quad.y;
            tile_a[place + 2u * PITCH_A][row % 4u] = quad.z;
            tile_a[place + 3u * PITCH_A][row % 4u] = quad.w;
        }
    }
}

fn fetch_b(batch: u32, thread: u32, first_column: u32, first_k: u32) {
    if (TRANSPOSE_B) {
        for (var i = thread; i < DEPTH * 2u * COLUMNS; i += THREADS) {
            let column = i / (DEPTH / 4u);
            let k = 4u * (i % (DEPTH / 4u));
            let quad = quad_b(batch, first_column + column, first_k + k);
            let place = k * PITCH_B + column / 4u;
            tile_b[place][column % 4u] = quad.x;
            tile_b[place + PITCH_B][column % 4u] = quad.y;
            tile_b[place + 2u * PITCH_B][column % 4u] = quad.z;
            tile_b[place + 3u * PITCH_B][column % 4u] = quad.w;
        }
    } else {
        for (var i = thread; i < DEPTH * 2u * COLUMNS; i += THREADS) {
            let k = i / (2u * COLUMNS);
            let quad = i % (2u * COLUMNS);
            tile_b[k * PITCH_B + quad] = quad_b(batch, first_k + k, first_column + 4u * quad);
        }
    }
}

@compute @workgroup_size(THREADS)
fn gemm(
    @builtin(local_invocation_index) thread: u32,
    @builtin(workgroup_id) group: vec3u,
    @builtin(num_workgroups) groups: vec3u,
) {
    let across = (sizes.n + 8u * COLUMNS - 1u) / (8u * COLUMNS);
    let down = (sizes.m + 8u * ROWS - 1u) / (8u * ROWS);
    let tile = group.x + group.y * groups.x;
    if (tile >= across * down) {
        return; // the grid is folded at the adapter's limit a dimension; a whole workgroup leaves
    }
    let batch = group.z;
    let first_row = 8u * ROWS * (tile / across);
    let first_column = 8u * COLUMNS * (tile % across);
    let y = thread / COLUMNS;
    let x = thread % COLUMNS;

    // Sums of the 8 rows, left and right quads. Named and not an array: an index would be checked, and may spill.
    var l0 = vec4f(); var l1 = vec4f(); var l2 = vec4f(); var l3 = vec4f();
    var l4 = vec4f(); var l5 = vec4f(); var l6 = vec4f(); var l7 = vec4f();
    var r0 = vec4f(); var r1 = vec4f(); var r2 = vec4f(); var r3 = vec4f();
    var r4 = vec4f(); var r5 = vec4f(); var r6 = vec4f(); var r7 = vec4f();

    for (var first_k = 0u; first_k < sizes.k; first_k += DEPTH) {
        fetch_a(batch, thread, first_row, first_k);
        fetch_b(batch, thread, first_column, first_k);
        workgroupBarrier();
        for (var k = 0u; k < DEPTH; k++) {
            let upper = tile_a[k * PITCH_A + y];
            let lower = tile_a[k * PITCH_A + ROWS + y];
            let left = tile_b[k * PITCH_B + x];
            let right = tile_b[k * PITCH_B + COLUMNS + x];
            l0 += upper.x * left; r0 += upper.x * right;
            l1 += upper.y * left; r1 += upper.y * right;
            l2 += upper.z * left; r2 += upper.z * right;
            l3 += upper.w * left; r3 += upper.w * right;
            l4 += lower.x * left; r4 += lower.x * right;
            l5 += lower.y * left; r5 += lower.y * right;
            l6 += lower.z * left; r6 += lower.z * right;
            l7 += lower.w * left; r7 += lower.w * right;
        }
        workgroupBarrier();
    }

    let row = first_row + 4u * y;
    let below = row + 4u * ROWS;
    let column = first_column + 4u * x;
    let beside = column + 4u * COLUMNS;
    write_quad(batch, row, column, l0); write_quad(batch, row, beside, r0);
    write_quad(batch, row + 1u, column, l1); write_quad(batch, row + 1u, beside, r1);
    write_quad(batch, row + 2u, column, l2); write_quad(batch, row + 2u, beside, r2);
    write_quad(batch, row + 3u, column, l3); write_quad(batch, row + 3u, beside, r3);
    write_quad(batch, below, column, l4); write_quad(batch, below, beside, r4);
    write_quad(batch, below + 1u, column, l5); write_quad(batch, below + 1u, beside, r5);
    write_quad(batch, below + 2u, column, l6); write_quad(batch, below + 2u, beside, r6);
    write_quad(batch, below + 3u, column, l7); write_quad(batch, below + 3u, beside, r7);
}
