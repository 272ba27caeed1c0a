// A loop of CUDA C++ without Python, as an engine for the claims of docs/blackwell.md: a network of two layers, its gradients
// and its update are kernels of this file, or its products are cuBLAS's. CUDA's runtime is linked statically.
//   engine STEPS FOLDER [own|cublas]
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <cuda_profiler_api.h>

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

// cuBLAS is opened at run time, so that compiling needs no header of it. Its matrices are columns first.
static int (*sgemm)(void *, int, int, int, int, int, const float *, const float *, int, const float *, int, const float *, float *, int);
static void *cublas;

static void open_cublas() {
  void *library = nullptr;
  for (const char *name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"})
    if (!library) library = dlopen(name, RTLD_NOW);
  auto create = library ? (int (*)(void **))dlsym(library, "cublasCreate_v2") : nullptr;
  sgemm = library ? (decltype(sgemm))dlsym(library, "cublasSgemm_v2") : nullptr;
  if (create && sgemm && create(&cublas) == 0) return;
  std::fprintf(stderr, "cuBLAS: %s\n", library ? "cannot be used" : dlerror());
  std::exit(1);
}

static std::vector<float> on_host(const float *device, int count) {
  std::vector<float> host(count);
  checked(cudaMemcpy(host.data(), device, count * sizeof(float), cudaMemcpyDeviceToHost), "cudaMemcpy");
  return host;
}

struct Dumped { const char *name; std::vector<float> values; int rows, columns; };

static void dump(const std::string &path, const std::vector<Dumped> &all) {
  std::string header = "{";
  size_t at = 0;
  for (const Dumped &one : all) {
    size_t end = at + one.values.size() * sizeof(float);
    header += (at ? ",\"" : "\"") + std::string(one.name) + "\":{\"dtype\":\"F32\",\"shape\":[" + std::to_string(one.rows) + "," +
              std::to_string(one.columns) + "],\"data_offsets\":[" + std::to_string(at) + "," + std::to_string(end) + "]}";
    at = end;
  }
  header += "}";
  uint64_t size = header.size();
  FILE *file = std::fopen(path.c_str(), "wb");
  if (!file) std::exit(1);
  std::fwrite(&size, sizeof size, 1, file);
  std::fwrite(header.data(), 1, size, file);
  for (const Dumped &one : all) std::fwrite(one.values.data(), sizeof(float), one.values.size(), file);
  std::fclose(file);
}

static void product(float *out, const float *a, const float *b, int m, int n, int k, bool a_turned = false, bool b_turned = false) {
  if (cublas) {
    const float one = 1, none = 0;
    if (sgemm(cublas, b_turned, a_turned, n, m, k, &one, b, b_turned ? k : n, a, a_turned ? m : k, &none, out, n)) std::exit(1);
    return;
  }
  multiply<<<dim3((n + 15) / 16, (m + 15) / 16), dim3(16, 16)>>>(out, a, b, m, n, k, a_turned, b_turned);
}

static int blocks(int count) { return (count + 255) / 256; }

int main(int argc, char **argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 20, rows = 512, in = 64, wide = 128, out = 8;
  if (argc > 3 && std::string(argv[3]) == "cublas") open_cublas();
  float *inputs = on_device(rows * in, 1), *truth = on_device(in * out, 0.125f), *wanted = on_device(rows * out, 0);
  float *first = on_device(in * wide, 0.125f), *second = on_device(wide * out, 0.08f);
  float *hidden = on_device(rows * wide, 0), *output = on_device(rows * out, 0), *back = on_device(rows * wide, 0);
  float *first_gradient = on_device(in * wide, 0), *second_gradient = on_device(wide * out, 0), *loss = on_device(1, 0);
  float *output_before = on_device(rows * out, 0);
  product(wanted, inputs, truth, rows, out, in);
  for (int step = 1; step <= steps; step++) {
    checked(cudaMemset(loss, 0, sizeof(float)), "cudaMemset");
    product(hidden, inputs, first, rows, wide, in);
    rectify<<<blocks(rows * wide), 256>>>(hidden, rows * wide);
    product(output, hidden, second, rows, out, wide);
    checked(cudaMemcpy(output_before, output, rows * out * sizeof(float), cudaMemcpyDeviceToDevice), "the output");
    compare<<<blocks(rows * out), 256>>>(output, wanted, loss, rows * out);
    std::vector<float> result;
    if (step == 3) {  // the warm-up is over
      result = on_host(output_before, rows * out);
      checked(cudaProfilerStart(), "cudaProfilerStart");
    }
    product(second_gradient, hidden, output, wide, out, rows, true);
    product(back, output, second, rows, wide, out, false, true);
    if (step == 3) {
      checked(cudaDeviceSynchronize(), "the backward pass");
      checked(cudaProfilerStop(), "cudaProfilerStop");
      dump(std::string(argv[2]) + "/product-last.safetensors",
           {{"x", on_host(hidden, rows * wide), rows, wide}, {"weight", on_host(second, wide * out), wide, out},
            {"output", result, rows, out}, {"grad_output", on_host(output, rows * out), rows, out},
            {"grad_x", on_host(back, rows * wide), rows, wide},
            {"grad_weight", on_host(second_gradient, wide * out), wide, out}});
    }
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
