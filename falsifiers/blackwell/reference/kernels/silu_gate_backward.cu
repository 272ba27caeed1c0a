// The gradients of gate and up; the derivative of z * s(z) is s(z) * (1 + z * (1 - s(z))).

extern "C" __global__ void KERNEL(
    const float* gate, const float* up, const float* gradient, float* of_gate, float* of_up, long long count) {
    for (long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x; at < count;
         at += (long long)gridDim.x * blockDim.x) {
        const float sigmoid = 1.0f / (1.0f + expf(-gate[at]));
        of_gate[at] = gradient[at] * up[at] * sigmoid * (1.0f + gate[at] * (1.0f - sigmoid));
        of_up[at] = gradient[at] * gate[at] * sigmoid;
    }
}
