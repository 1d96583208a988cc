#include <algorithm>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/library.h>

#include "sim_device/machine.h"
#include "sim_device/torch_device.h"

namespace sim {
namespace {

/// The CPU's generator under the name of a device. The host advances its state in the order of the
/// calls; tasks get copies.
struct DeviceGenerator final : at::CPUGeneratorImpl {
  explicit DeviceGenerator(int device) {
    device_ = {kDeviceType, static_cast<c10::DeviceIndex>(device)};
    key_set_ = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
  }
};

at::Generator make_generator(int device) {
  return at::make_generator<DeviceGenerator>(device < 0 ? current_device() : device);
}

/// Hooks by which LibTorch finds the device, its generators and its allocators.
struct Hooks final : at::PrivateUse1HooksInterface {
  [[nodiscard]] bool isBuilt() const override { return true; }

  [[nodiscard]] bool isAvailable() const override { return true; }

  [[nodiscard]] bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }

  [[nodiscard]] c10::DeviceIndex deviceCount() const override { return kDeviceCount; }

  void setCurrentDevice(c10::DeviceIndex device) const override { set_current_device(device); }

  [[nodiscard]] c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(current_device());
  }

  [[nodiscard]] c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex earlier = getCurrentDevice();
    if (device >= 0) {
      set_current_device(device);
    }
    return earlier;
  }

  [[nodiscard]] c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchangeDevice(device);
  }

  [[nodiscard]] const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device);
  }

  [[nodiscard]] at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return make_generator(device);
  }

  [[nodiscard]] at::Device getDeviceFromPtr(void* pointer) const override {
    return {kDeviceType, static_cast<c10::DeviceIndex>(machine().memory.device_of(pointer))};
  }

  bool isPinnedPtr(const void* pointer) const override {
    return machine().blocks.is_pinned(pointer);
  }

  [[nodiscard]] at::Allocator* getPinnedMemoryAllocator() const override {
    return &pinned_allocator();
  }

  // Without this hook a storage that was freed cannot grow again.
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    const c10::DeviceIndex earlier = exchangeDevice(storage.device().index());
    c10::DataPtr fresh = device_allocator().allocate(bytes);
    if (const std::size_t kept = std::min(bytes, storage.nbytes()); kept != 0) {
      device_allocator().copy_data(fresh.get(), storage.data(), kept);
    }
    storage.set_data_ptr_noswap(std::move(fresh));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
    set_current_device(earlier);
  }
};

/// Kernels stay registered as long as their libraries live, here until the process ends.
class Libraries {
 public:
  torch::Library& add(const char* name, c10::DispatchKey key) {
    return libraries_.emplace_back(torch::Library::IMPL, name, key, __FILE__, __LINE__);
  }

 private:
  std::deque<torch::Library> libraries_;  // References stay valid.
};

void add_operators(Libraries& libraries) {
  using c10::DispatchKey;
  torch::Library& aten = libraries.add("aten", DispatchKey::PrivateUse1);
  add_fallback(libraries.add("_", DispatchKey::PrivateUse1), aten);
  add_storage_operators(aten);
  add_copy_operators(aten,
                     libraries.add("aten", DispatchKey::Conjugate),
                     libraries.add("aten", DispatchKey::Negative));
  add_layer_operators(aten, libraries.add("aten", DispatchKey::AutogradPrivateUse1));
  add_autocast(libraries.add("_", DispatchKey::AutocastPrivateUse1),
               libraries.add("aten", DispatchKey::AutocastPrivateUse1));
}

void install_once() {
  // Before any text is parsed as a device.
  c10::register_privateuse1_backend("sim");
  // Tasks of streams would otherwise start OpenMP's threads, whose number changes the bits.
  machine().context.on_thread_start = [] { at::init_num_threads(); };
  report_host_accesses(machine().memory);
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  register_guard();
  register_allocators();
  static auto* const libraries = new Libraries;
  add_operators(*libraries);
}

}  // namespace

const at::Generator& default_generator(int device) {
  static const auto* const generators = [] {
    auto* made = new std::vector<at::Generator>;
    for (int index = 0; index < kDeviceCount; ++index) {
      made->push_back(make_generator(index));
    }
    return made;
  }();
  return generators->at(static_cast<std::size_t>(device < 0 ? current_device() : device));
}

void install() {
  static std::once_flag once;
  std::call_once(once, install_once);
}

}  // namespace sim
