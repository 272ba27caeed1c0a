// C = op(A) op(B) + bias in float32, all row-major, one matrix of a batch for each blockIdx.z.
//
// op(A) is [m, k], op(B) is [k, n]; with TRANSPOSE_A the matrix in memory is [k, m], with TRANSPOSE_B [n, k].
// Constants: SIZE_M, SIZE_N, SIZE_K (0: an argument of the launch), TRANSPOSE_A, TRANSPOSE_B, BIAS, TILE.
// A block of 16 x 16 threads computes TILE x TILE elements, each thread (TILE / 16)^2 of them in registers. Its rows and
// columns are 16 apart, so that neighbouring threads read neighbouring banks of shared memory and write whole lines.

#define SIDE 16
#define DEPTH 16
#define EACH (TILE / SIDE)

extern "C" __global__ void __launch_bounds__(SIDE * SIDE)
    KERNEL(const float* a, const float* b, const float* bias, float* c, int told_m, int told_n, int told_k) {
    const int m = SIZE_M ? SIZE_M : told_m, n = SIZE_N ? SIZE_N : told_n, k = SIZE_K ? SIZE_K : told_k;
    // One more column than needed: a transposing store would otherwise hit one bank sixteen times.
    __shared__ float tile_a[DEPTH][TILE + 1];
    __shared__ float tile_b[DEPTH][TILE + 1];
    const int column = threadIdx.x % SIDE, row = threadIdx.x / SIDE;
    const int first_m = blockIdx.y * TILE, first_n = blockIdx.x * TILE;
    a += (long long)blockIdx.z * m * k;
    b += (long long)blockIdx.z * k * n;
    c += (long long)blockIdx.z * m * n;

    float sums[EACH][EACH] = {};
    for (int first_k = 0; first_k < k; first_k += DEPTH) {
        for (int at = threadIdx.x; at < DEPTH * TILE; at += SIDE * SIDE) {
            // Neighbouring threads walk along the dimension that lies contiguous in memory.
            const int deep_a = TRANSPOSE_A ? at / TILE : at % DEPTH, wide_a = TRANSPOSE_A ? at % TILE : at / DEPTH;
            const int in_k_a = first_k + deep_a, in_m = first_m + wide_a;
            const long long place_a = TRANSPOSE_A ? (long long)in_k_a * m + in_m : (long long)in_m * k + in_k_a;
            tile_a[deep_a][wide_a] = in_k_a < k && in_m < m ? a[place_a] : 0.0f;

            const int deep_b = TRANSPOSE_B ? at % DEPTH : at / TILE, wide_b = TRANSPOSE_B ? at / DEPTH : at % TILE;
            const int in_k_b = first_k + deep_b, in_n = first_n + wide_b;
            const long long place_b = TRANSPOSE_B ? (long long)in_n * k + in_k_b : (long long)in_k_b * n + in_n;
            tile_b[deep_b][wide_b] = in_k_b < k && in_n < n ? b[place_b] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int deep = 0; deep < DEPTH; ++deep) {
            float of_a[EACH], of_b[EACH];
#pragma unroll
            for (int i = 0; i < EACH; ++i) {
                of_a[i] = tile_a[deep][row + i * SIDE];
                of_b[i] = tile_b[deep][column + i * SIDE];
            }
#pragma unroll
            for (int i = 0; i < EACH; ++i)
#pragma unroll
                for (int j = 0; j < EACH; ++j) sums[i][j] += of_a[i] * of_b[j];
        }
        __syncthreads();
    }

#pragma unroll
    for (int i = 0; i < EACH; ++i)
#pragma unroll
        for (int j = 0; j < EACH; ++j) {
            const int in_m = first_m + row + i * SIDE, in_n = first_n + column + j * SIDE;
            if (in_m < m && in_n < n) c[(long long)in_m * n + in_n] = sums[i][j] + (BIAS ? bias[in_n] : 0.0f);
        }
}
