// Softmax of scale * scores over the keys of a row, one block a row; row r is query r % keys, and sees the keys up to it.
#include "block_sum.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const float* scores, float* out, float scale, int keys) {
    const long long first = (long long)blockIdx.x * keys;
    const int seen = blockIdx.x % keys + 1;
    scores += first, out += first;
    float largest = scale * scores[0];
    for (int key = threadIdx.x; key < seen; key += THREADS) largest = fmaxf(largest, scale * scores[key]);
    largest = block_maximum(largest);
    float sum = 0.0f;
    for (int key = threadIdx.x; key < seen; key += THREADS) sum += expf(scale * scores[key] - largest);
    sum = block_sum(sum);
    for (int key = threadIdx.x; key < keys; key += THREADS)
        out[key] = key < seen ? expf(scale * scores[key] - largest) / sum : 0.0f;
}
