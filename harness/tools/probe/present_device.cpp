// Lets a process without an NVIDIA GPU record autograd graphs of tensors that say they are on `cuda`, and have no memory.
//
// torch's autograd engine asks the CUDA device guard for streams and events. A CPU build of torch has no such guard, and the
// guard that torch uses if no GPU is visible refuses events. `pretend` puts a guard in its place that has one device, one
// stream, and events that do nothing. `relent` puts back what was there. No function here calls CUDA.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <sys/mman.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/utils/device_lazy_init.h>
#include <torch/library.h>

#include <atomic>
#include <utility>
#include <vector>

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

constexpr auto CUDA = c10::DeviceType::CUDA;

struct Hooks final : at::CUDAHooksInterface {
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  void init() const override {}
};
static_assert(sizeof(Hooks) == sizeof(void*));

Stream stream() { return Stream(Stream::DEFAULT, Device(CUDA, 0)); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return CUDA; }
  Device exchangeDevice(Device) const override { return Device(CUDA, 0); }
  Device getDevice() const override { return Device(CUDA, 0); }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  Stream getStream(Device) const override { return stream(); }
  Stream getDefaultStream(Device) const override { return stream(); }
  Stream getNewStream(Device, int) const override { return stream(); }
  Stream exchangeStream(Stream) const override { return stream(); }
  DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const Stream&, const DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const DeviceIndex) const override {}
};

auto& slot = c10::impl::device_guard_impl_registry[static_cast<size_t>(CUDA)];
const c10::impl::DeviceGuardImplInterface* before = nullptr;

// torch has one object of hooks for as long as the process lives: of CUDA's own in a CUDA build, of the base class in a CPU
// build. Neither has members, so an object is its table of functions. The tables are exchanged.
void exchange_hooks() {
  static auto* pretended = new Hooks();
  auto* present = const_cast<at::CUDAHooksInterface*>(&at::detail::getCUDAHooks());
  std::swap(*reinterpret_cast<void**>(present), *reinterpret_cast<void**>(static_cast<at::CUDAHooksInterface*>(pretended)));
}

// The engine starts its threads at the first backward pass of a process, one for each device that is there by then.
struct Threads final : torch::autograd::Engine {
  static constexpr auto initialize = &Threads::initialize_device_threads_pool;
  static constexpr auto start = &Threads::start_device_threads;
  static constexpr auto queues = &Threads::device_ready_queues_;
};

// What was allocated and freed: n if block n was allocated, -n if it was freed, 0 if the cache was emptied.
std::vector<int64_t> events;
std::vector<int64_t> sizes; // of the blocks; block n is at n - 1
std::vector<bool> lives;
int64_t live = 0, peak = 0, epoch = 0;

int64_t allocated(int64_t size) {
  sizes.push_back(size);
  lives.push_back(true);
  events.push_back(static_cast<int64_t>(sizes.size()));
  live += size;
  peak = std::max(peak, live);
  return events.back();
}

void freed(int64_t number) {
  live -= sizes[number - 1];
  lives[number - 1] = false;
  events.push_back(-number);
}

// A storage's context is the number of its block, 0 for none, and the trace that it belongs to.
void died(void* context) {
  auto value = reinterpret_cast<int64_t>(context);
  if (value >> 40 == epoch && (value & ((int64_t{1} << 40) - 1)) != 0)
    freed(value & ((int64_t{1} << 40) - 1));
}

// Addresses that no other storage has, in a range of which nothing is read or written. They are never used twice.
constexpr size_t RANGE = size_t{1} << 44;
char* range() {
  static auto* start = static_cast<char*>(
      mmap(nullptr, RANGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  return start;
}
size_t taken = 0;

c10::DataPtr pointer(int64_t number, Device device) {
  taken = (taken + 512) % (RANGE / 2);
  return {range() + taken, reinterpret_cast<void*>(epoch << 40 | number), died, device};
}

at::Tensor empty(
    at::IntArrayRef shape, at::IntArrayRef stride, c10::ScalarType dtype, Device device, int64_t bytes, int64_t number) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, pointer(number, device), nullptr, false);
  auto key = device.type() == CUDA ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
  auto made = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(key), c10::scalarTypeToTypeMeta(dtype));
  made.unsafeGetTensorImpl()->set_sizes_and_strides(shape, stride, 0);
  return made;
}

// A tensor of zeros that takes no memory, as `_efficientzerotensor` makes it.
at::Tensor zeros(at::IntArrayRef shape, c10::ScalarType dtype, Device device) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, pointer(0, device), nullptr, false);
  auto key = device.type() == CUDA ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
  auto made = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet({key, c10::DispatchKey::ZeroTensor}), c10::scalarTypeToTypeMeta(dtype));
  made.unsafeGetTensorImpl()->set_sizes_contiguous(shape);
  return made;
}

at::Tensor view(
    const at::Tensor& self, at::IntArrayRef shape, at::IntArrayRef stride, int64_t offset, c10::ScalarType dtype,
    bool conjugate, bool negative) {
  auto keys = self.key_set() - c10::DispatchKeySet({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});
  auto made = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(self.storage()), keys, c10::scalarTypeToTypeMeta(dtype));
  auto* impl = made.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(shape, stride, offset);
  if (conjugate)
    impl->_set_conj(true);
  if (negative)
    impl->_set_neg(true);
  return made;
}

// Give a tensor another shape and another storage.
void become(
    const at::Tensor& self, c10::Storage source, at::IntArrayRef shape, at::IntArrayRef stride, int64_t offset) {
  auto* impl = self.unsafeGetTensorImpl();
  if (impl->storage().unsafeGetStorageImpl() != source.unsafeGetStorageImpl())
    impl->set_storage_keep_dtype(std::move(source));
  impl->set_sizes_and_strides(shape, stride, offset);
}

int64_t address(const at::Tensor& self) {
  return reinterpret_cast<int64_t>(self.storage().unsafeGetStorageImpl()->data_ptr().get());
}

// Free the memory of a storage and give it some of another size.
void resize(const at::Tensor& self, int64_t bytes, int64_t number) {
  auto* storage = self.storage().unsafeGetStorageImpl();
  auto before = storage->set_data_ptr(pointer(number, storage->device()));
  storage->set_nbytes(bytes);
}

TORCH_LIBRARY(harness_probe, library) {
  library.def("empty(int[] shape, int[] stride, ScalarType dtype, Device device, int bytes, int number) -> Tensor", empty);
  library.def(
      "view(Tensor self, int[] shape, int[] stride, int offset, ScalarType dtype, bool conjugate, bool negative) -> Tensor",
      view);
  library.def("become(Tensor self, Storage source, int[] shape, int[] stride, int offset) -> ()", become);
  library.def("zeros(int[] shape, ScalarType dtype, Device device) -> Tensor", zeros);
  library.def("address(Tensor self) -> int", address);
  library.def("resize(Tensor self, int bytes, int number) -> ()", resize);
}

// Tensors that are conjugate, negative or zero until something reads them stay so.
void fall_through(torch::Library& library) {
  for (const auto* name : {"view", "become", "address", "resize"})
    library.impl(name, torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(harness_probe, Conjugate, library) { fall_through(library); }
TORCH_LIBRARY_IMPL(harness_probe, Negative, library) { fall_through(library); }
TORCH_LIBRARY_IMPL(harness_probe, ZeroTensor, library) { fall_through(library); }

} // namespace

extern "C" int64_t probe_begin() {
  events.clear();
  sizes.clear();
  lives.clear();
  live = peak = 0;
  return ++epoch;
}
extern "C" void probe_end() { ++epoch; }
extern "C" int64_t probe_allocated(int64_t size) { return allocated(size); }
extern "C" void probe_freed(int64_t number) { freed(number); }
extern "C" void probe_empty_cache() { events.push_back(0); }
extern "C" int64_t probe_live() { return live; }
extern "C" int64_t probe_peak() { return peak; }
extern "C" int64_t probe_count() { return static_cast<int64_t>(events.size()); }
extern "C" const int64_t* probe_events() { return events.data(); }
extern "C" int64_t probe_lives(int64_t* numbers) {
  int64_t count = 0;
  for (size_t at = 0; at < lives.size(); ++at)
    if (lives[at])
      numbers[count++] = static_cast<int64_t>(at) + 1;
  return count;
}
extern "C" int64_t probe_range() { return reinterpret_cast<int64_t>(range()); }

extern "C" void pretend() {
  static auto* guard = new Guard();
  auto& engine = torch::autograd::Engine::get_default_engine();
  try {
    (engine.*Threads::initialize)(); // those of the devices that are there
  } catch (const c10::Error&) {
    // A child of a process with such threads has none. Its first backward pass says so.
  }
  before = slot.exchange(guard);
  exchange_hooks();
  if ((engine.*Threads::queues).empty())
    (engine.*Threads::start)();
}

// Let torch initialize the device when a tensor is first made on it. While it was pretended, torch took it to be initialized.
extern "C" void probe_forget() { torch::utils::set_requires_device_init(CUDA, true); }

extern "C" void relent() {
  slot.store(before);
  exchange_hooks();
}
