// scale * p * (g - sum(p * g)) in every row of keys, one block a row; where p is 0, so is this.
#include "block_sum.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    KERNEL(const float* probabilities, const float* gradient, float* out, float scale, int keys) {
    const long long first = (long long)blockIdx.x * keys;
    probabilities += first, gradient += first, out += first;
    float sum = 0.0f;
    for (int key = threadIdx.x; key < keys; key += THREADS) sum += probabilities[key] * gradient[key];
    sum = block_sum(sum);
    for (int key = threadIdx.x; key < keys; key += THREADS)
        out[key] = scale * probabilities[key] * (gradient[key] - sum);
}
