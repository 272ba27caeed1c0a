// A loop of CUDA C++ without Python, as an engine for F-BLACKWELL-PTX-001: a network of two layers, its gradients and its
// update are kernels of this file. CUDA's runtime is linked statically.
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

static void checked(cudaError_t status, const char *what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

// out[m, n] = a[m, k] b[k, n]; with a_turned, a is [k, m]; with b_turned, b is [n, k].
__global__ void multiply(float *out, const float *a, const float *b, int m, int n, int k, bool a_turned, bool b_turned) {
  int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= m || column >= n) return;
  float sum = 0;
  for (int i = 0; i < k; i++) sum += (a_turned ? a[i * m + row] : a[row * k + i]) * (b_turned ? b[column * k + i] : b[i * n + column]);
  out[row * n + column] = sum;
}

__global__ void rectify(float *hidden, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) hidden[i] = fmaxf(hidden[i], 0);
}

__global__ void rectify_back(float *gradient, const float *hidden, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count && hidden[i] == 0) gradient[i] = 0;
}

// The output becomes the gradient of the mean squared error.
__global__ void compare(float *output, const float *wanted, float *loss, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float error = output[i] - wanted[i];
  atomicAdd(loss, error * error / count);
  output[i] = 2 * error / count;
}

__global__ void descend(float *weights, const float *gradient, float rate, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) weights[i] -= rate * gradient[i];
}

static std::mt19937 chance(0);

static float *on_device(int count, float scale) {
  std::normal_distribution<float> normal(0, scale > 0 ? scale : 1);
  std::vector<float> host(count);
  for (float &value : host) value = scale > 0 ? normal(chance) : 0;
  float *device;
  checked(cudaMalloc(&device, count * sizeof(float)), "cudaMalloc");
  checked(cudaMemcpy(device, host.data(), count * sizeof(float), cudaMemcpyHostToDevice), "cudaMemcpy");
  return device;
}

static void product(float *out, const float *a, const float *b, int m, int n, int k, bool a_turned = false, bool b_turned = false) {
  multiply<<<dim3((n + 15) / 16, (m + 15) / 16), dim3(16, 16)>>>(out, a, b, m, n, k, a_turned, b_turned);
}

static int blocks(int count) { return (count + 255) / 256; }

int main(int argc, char **argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 20, rows = 512, in = 64, wide = 128, out = 8;
  float *inputs = on_device(rows * in, 1), *truth = on_device(in * out, 0.125f), *wanted = on_device(rows * out, 0);
  float *first = on_device(in * wide, 0.125f), *second = on_device(wide * out, 0.08f);
  float *hidden = on_device(rows * wide, 0), *output = on_device(rows * out, 0), *back = on_device(rows * wide, 0);
  float *first_gradient = on_device(in * wide, 0), *second_gradient = on_device(wide * out, 0), *loss = on_device(1, 0);
  product(wanted, inputs, truth, rows, out, in);
  for (int step = 1; step <= steps; step++) {
    checked(cudaMemset(loss, 0, sizeof(float)), "cudaMemset");
    product(hidden, inputs, first, rows, wide, in);
    rectify<<<blocks(rows * wide), 256>>>(hidden, rows * wide);
    product(output, hidden, second, rows, out, wide);
    compare<<<blocks(rows * out), 256>>>(output, wanted, loss, rows * out);
    product(second_gradient, hidden, output, wide, out, rows, true);
    product(back, output, second, rows, wide, out, false, true);
    rectify_back<<<blocks(rows * wide), 256>>>(back, hidden, rows * wide);
    product(first_gradient, inputs, back, in, wide, rows, true);
    descend<<<blocks(in * wide), 256>>>(first, first_gradient, 0.2f, in * wide);
    descend<<<blocks(wide * out), 256>>>(second, second_gradient, 0.2f, wide * out);
    checked(cudaGetLastError(), "a launch");
    float now;
    checked(cudaMemcpy(&now, loss, sizeof now, cudaMemcpyDeviceToHost), "the loss");
    std::printf("step %d/%d loss %.6f\n", step, steps, now);
    std::fflush(stdout);
  }
}
