// out[column] = the sum of x [rows, columns] over its rows: the gradient of a bias.
//
// A block of 32 x 8 threads sums 32 columns; the order of additions is fixed, so equal inputs give equal bits.

extern "C" __global__ void KERNEL(const float* x, float* out, int rows, int columns) {
    __shared__ float sums[8][32];
    const int in_column = threadIdx.x % 32, in_row = threadIdx.x / 32;
    const int column = blockIdx.x * 32 + in_column;
    float sum = 0.0f;
    if (column < columns)
        for (int row = in_row; row < rows; row += 8) sum += x[(long long)row * columns + column];
    sums[in_row][in_column] = sum;
    __syncthreads();
    if (in_row == 0 && column < columns) {
        for (int other = 1; other < 8; ++other) sum += sums[other][in_column];
        out[column] = sum;
    }
}
