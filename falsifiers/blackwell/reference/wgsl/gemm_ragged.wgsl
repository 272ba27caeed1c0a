// Loads of gemm.wgsl where tiles reach over an edge: what lies outside is 0, and is not written.

@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

fn quad_a(batch: u32, row: u32, column: u32) -> vec4f {
    let size = select(vec2u(sizes.m, sizes.k), vec2u(sizes.k, sizes.m), TRANSPOSE_A);
    let start = batch * sizes.batch_a + row * sizes.pitch_a + column;
    var quad = vec4f();
    if (row < size.x) {
        for (var i = 0u; i < 4u; i++) {
            if (column + i < size.y) {
                quad[i] = a[start + i];
            }
        }
    }
    return quad;
}

fn quad_b(batch: u32, row: u32, column: u32) -> vec4f {
    let size = select(vec2u(sizes.k, sizes.n), vec2u(sizes.n, sizes.k), TRANSPOSE_B);
    let start = batch * sizes.batch_b + row * sizes.pitch_b + column;
    var quad = vec4f();
    if (row < size.x) {
        for (var i = 0u; i < 4u; i++) {
            if (column + i < size.y) {
                quad[i] = b[start + i];
            }
        }
    }
    return quad;
}

fn write_quad(batch: u32, row: u32, column: u32, value: vec4f) {
    if (row < sizes.m) {
        for (var i = 0u; i < 4u; i++) {
            if (column + i < sizes.n) {
                c[(batch * sizes.m + row) * sizes.n + column + i] = value[i];
            }
        }
    }
}
