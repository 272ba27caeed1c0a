// Loads of gemm.wgsl where every tile is whole: four elements at a time, and nothing is checked.

@group(0) @binding(1) var<storage, read> a: array<vec4f>;
@group(0) @binding(2) var<storage, read> b: array<vec4f>;
@group(0) @binding(3) var<storage, read_write> c: array<vec4f>;

fn quad_a(batch: u32, row: u32, column: u32) -> vec4f {
    return a[(batch * sizes.batch_a + row * sizes.pitch_a + column) / 4u];
}

fn quad_b(batch: u32, row: u32, column: u32) -> vec4f {
    return b[(batch * sizes.batch_b + row * sizes.pitch_b + column) / 4u];
}

fn write_quad(batch: u32, row: u32, column: u32, value: vec4f) {
    c[((batch * sizes.m + row) * sizes.n + column) / 4u] = value;
}
