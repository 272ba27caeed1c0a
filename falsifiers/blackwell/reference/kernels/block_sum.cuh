// The sum over the 256 threads of a block, returned to every thread.

#define THREADS 256

__device__ float block_sum(float value) {
    __shared__ float shared[THREADS];
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
        __syncthreads();
    }
    const float sum = shared[0];
    __syncthreads();  // all threads must read this sum before one writes the next values
    return sum;
}

__device__ float block_maximum(float value) {
    __shared__ float shared[THREADS];
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) shared[threadIdx.x] = fmaxf(shared[threadIdx.x], shared[threadIdx.x + half]);
        __syncthreads();
    }
    const float maximum = shared[0];
    __syncthreads();
    return maximum;
}
