// Rotates the pairs (i, i + HEAD_DIM / 2) of x [rows, sequence, HEAD_DIM] by DIRECTION * position * THETA^(-2i / HEAD_DIM).
//
// A block serves one position: its 32 x 8 threads compute sine and cosine of every pair once, in double precision,
// because a float angle at position 32,767 is off by 0.002, and then go over the rows (batch x heads).

extern "C" __global__ void KERNEL(const float* x, float* out, int rows, int sequence) {
    constexpr int half = HEAD_DIM / 2;
    __shared__ float cosines[half], sines[half];
    const int position = blockIdx.x;
    for (int pair = threadIdx.x; pair < half; pair += 256) {
        const double angle = position * pow(THETA, -2.0 * pair / HEAD_DIM);
        cosines[pair] = (float)cos(angle);
        sines[pair] = DIRECTION * (float)sin(angle);
    }
    __syncthreads();
    for (int row = threadIdx.x / 32; row < rows; row += 8) {
        const long long first = ((long long)row * sequence + position) * HEAD_DIM;
        for (int pair = threadIdx.x % 32; pair < half; pair += 32) {
            const float left = x[first + pair], right = x[first + pair + half];
            out[first + pair] = left * cosines[pair] - right * sines[pair];
            out[first + pair + half] = right * cosines[pair] + left * sines[pair];
        }
    }
}
