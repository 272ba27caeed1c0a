// Lets a process without an NVIDIA GPU record autograd graphs of fake tensors that say they are on `cuda`.
//
// torch's autograd engine asks the CUDA device guard for streams and events. A CPU build of torch has no such guard, and the
// guard that torch uses if no GPU is visible refuses events. `pretend` puts a guard in its place that has one device, one
// stream, and events that do nothing. `relent` puts back what was there. No function here calls CUDA.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <utility>

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

} // namespace

extern "C" void pretend() {
  static auto* guard = new Guard();
  before = slot.exchange(guard);
  exchange_hooks();
}

extern "C" void relent() {
  slot.store(before);
  exchange_hooks();
}
