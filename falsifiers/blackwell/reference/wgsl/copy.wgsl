// A strided tensor of four dimensions, written one element after the other.

struct Sizes {
    shape: vec4u,
    strides: vec4u, // in elements
    offset: u32,
    count: u32,
}

@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> strided: array<f32>;
@group(0) @binding(2) var<storage, read_write> packed: array<f32>;

const THREADS = 256u;

@compute @workgroup_size(THREADS)
fn copy(
    @builtin(local_invocation_index) thread: u32,
    @builtin(workgroup_id) group: vec3u,
    @builtin(num_workgroups) groups: vec3u,
) {
    let i = (group.x + group.y * groups.x) * THREADS + thread;
    if (i >= sizes.count) {
        return;
    }
    let w = i % sizes.shape.w;
    let z = i / sizes.shape.w % sizes.shape.z;
    let y = i / (sizes.shape.w * sizes.shape.z) % sizes.shape.y;
    let x = i / (sizes.shape.w * sizes.shape.z * sizes.shape.y);
    packed[i] = strided[sizes.offset + dot(vec4u(x, y, z, w), sizes.strides)];
}
