// out = gate * sigmoid(gate) * up, element by element.

extern "C" __global__ void KERNEL(const float* gate, const float* up, float* out, long long count) {
    for (long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x; at < count;
         at += (long long)gridDim.x * blockDim.x)
        out[at] = gate[at] / (1.0f + expf(-gate[at])) * up[at];
}
