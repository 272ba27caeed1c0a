// The gradient of the norm's weight: the sum over tokens of gradient * x / rms, in blocks of 32 features x 8 tokens.

extern "C" __global__ void
    KERNEL(const float* x, const float* gradient, const float* inverses, float* of_weight, int tokens) {
    __shared__ float sums[8][32];
    const int in_column = threadIdx.x % 32, in_row = threadIdx.x / 32;
    const int column = blockIdx.x * 32 + in_column;
    float sum = 0.0f;
    if (column < HIDDEN)
        for (int token = in_row; token < tokens; token += 8) {
            const long long at = (long long)token * HIDDEN + column;
            sum += gradient[at] * x[at] * inverses[token];
        }
    sums[in_row][in_column] = sum;
    __syncthreads();
    if (in_row == 0 && column < HIDDEN) {
        for (int other = 1; other < 8; ++other) sum += sums[other][in_column];
        of_weight[column] = sum;
    }
}
