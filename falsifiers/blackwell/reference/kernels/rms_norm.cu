// out = x / sqrt(mean(x^2) + EPS) * weight over the HIDDEN features of a token, one block a token.
#include "block_sum.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const float* x, const float* weight, float* out) {
    x += (long long)blockIdx.x * HIDDEN;
    out += (long long)blockIdx.x * HIDDEN;
    float squares = 0.0f;
    for (int at = threadIdx.x; at < HIDDEN; at += THREADS) squares += x[at] * x[at];
    const float inverse = 1.0f / sqrtf(block_sum(squares) / HIDDEN + EPS);
    for (int at = threadIdx.x; at < HIDDEN; at += THREADS) out[at] = x[at] * inverse * weight[at];
}
