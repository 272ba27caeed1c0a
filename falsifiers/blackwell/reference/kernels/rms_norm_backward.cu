// The gradient of x, one block a token, and 1 / rms of every token for rms_norm_weight.cu.
//
// With n = x / rms and g = gradient * weight: (g - n * mean(g * n)) / rms.
#include "block_sum.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    KERNEL(const float* x, const float* weight, const float* gradient, float* of_x, float* inverses) {
    const long long first = (long long)blockIdx.x * HIDDEN;
    x += first, gradient += first, of_x += first;
    float squares = 0.0f, along = 0.0f;
    for (int at = threadIdx.x; at < HIDDEN; at += THREADS) {
        squares += x[at] * x[at];
        along += gradient[at] * weight[at] * x[at];
    }
    const float inverse = 1.0f / sqrtf(block_sum(squares) / HIDDEN + EPS);
    const float mean = block_sum(along) * inverse / HIDDEN;
    for (int at = threadIdx.x; at < HIDDEN; at += THREADS)
        of_x[at] = (gradient[at] * weight[at] - x[at] * inverse * mean) * inverse;
    if (threadIdx.x == 0) inverses[blockIdx.x] = inverse;
}
