#include <memory>
#include <utility>

#include <c10/core/DeviceCapability.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "sim_device/machine.h"
#include "sim_device/torch_device.h"

namespace sim {
namespace {

int index_of(c10::Device device) {
  return device.has_index() ? device.index() : current_device();
}

c10::Device device_at(int index) {
  return {kDeviceType, static_cast<c10::DeviceIndex>(index)};
}

c10::Stream to_torch(StreamKey key) {
  return c10::Stream(c10::Stream::UNSAFE, device_at(key.device), key.id);
}

StreamKey key_of(const c10::Stream& stream) {
  return {stream.device_index(), stream.id()};
}

Stream& stream_of(const c10::Stream& stream) {
  return machine().streams.get(key_of(stream));
}

/// c10::Event holds a pointer to this handle. A new record replaces the event; waits for the
/// earlier one go on.
struct EventHandle {
  EventPtr latest;
};

Event& latest(void* handle) {
  return *static_cast<EventHandle*>(handle)->latest;
}

/// The device's streams, events and current device for LibTorch. Stateless and thread-safe.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  [[nodiscard]] c10::DeviceType type() const override { return kDeviceType; }

  [[nodiscard]] c10::DeviceIndex deviceCount() const noexcept override { return kDeviceCount; }

  [[nodiscard]] c10::Device getDevice() const override { return device_at(current_device()); }

  void setDevice(c10::Device device) const override { set_current_device(index_of(device)); }

  [[nodiscard]] c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device earlier = getDevice();
    setDevice(device);
    return earlier;
  }

  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0 && device.index() < kDeviceCount) {
      set_current_device(device.index());
    }
  }

  [[nodiscard]] c10::DeviceCapability getDeviceCapability(c10::Device /*device*/) const override {
    return {};
  }

  [[nodiscard]] c10::Stream getStream(c10::Device device) const override {
    const int index = index_of(device);
    return to_torch({index, current_stream_id(index)});
  }

  [[nodiscard]] c10::Stream getDefaultStream(c10::Device device) const override {
    return to_torch({index_of(device), 0});
  }

  [[nodiscard]] c10::Stream getStreamFromGlobalPool(c10::Device device,
                                                    bool is_high_priority) const override {
    return to_torch(machine().streams.next_of_pool(index_of(device), is_high_priority));
  }

  [[nodiscard]] c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return to_torch(machine().streams.make_new(index_of(device)));
  }

  [[nodiscard]] c10::Stream exchangeStream(c10::Stream stream) const override {
    return to_torch({stream.device_index(), exchange_current_stream(key_of(stream))});
  }

  [[nodiscard]] void* getStreamNativeHandle(c10::Stream stream) const override {
    return &stream_of(stream);
  }

  [[nodiscard]] bool queryStream(const c10::Stream& stream) const override {
    return stream_of(stream).is_idle();
  }

  void synchronizeStream(const c10::Stream& stream) const override {
    machine().context.host_waits.fetch_add(1, std::memory_order_relaxed);
    stream_of(stream).synchronize();
    machine().context.errors.rethrow();
  }

  void synchronizeDevice(c10::DeviceIndex device) const override {
    machine().synchronize(device < 0 ? current_device() : device);
  }

  void record(void** event,
              const c10::Stream& stream,
              c10::DeviceIndex device,
              c10::EventFlag /*flag*/) const override {
    // As CUDA: an event belongs to the device of its first stream.
    TORCH_CHECK(device == -1 || device == stream.device_index(),
                "Event device index ",
                static_cast<int>(device),
                " does not match recording stream's device index ",
                static_cast<int>(stream.device_index()),
                ".");
    if (*event == nullptr) {
      *event = new EventHandle;
    }
    static_cast<EventHandle*>(*event)->latest = stream_of(stream).record();
  }

  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) {
      stream_of(stream).wait(static_cast<EventHandle*>(event)->latest);
    }
  }

  [[nodiscard]] bool queryEvent(void* event) const override {
    if (event == nullptr) {
      return true;
    }
    const bool is_done = latest(event).is_done();
    if (is_done) {
      machine().context.checker.host_waited(latest(event).clock());
    }
    return is_done;
  }

  void synchronizeEvent(void* event) const override {
    if (event == nullptr) {
      return;
    }
    machine().context.host_waits.fetch_add(1, std::memory_order_relaxed);
    latest(event).wait(machine().context.options.wait_limit);
    machine().context.checker.host_waited(latest(event).clock());
    machine().context.errors.rethrow();
  }

  void destroyEvent(void* event, c10::DeviceIndex /*device*/) const noexcept override {
    delete static_cast<EventHandle*>(event);
  }

  [[nodiscard]] double elapsedTime(void* first,
                                   void* second,
                                   c10::DeviceIndex /*device*/) const override {
    return latest(second).time_ms() - latest(first).time_ms();
  }

  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    machine().blocks.record_stream(data.get(), key_of(stream));
  }
};

}  // namespace

void register_guard() {
  // The registry keeps the guard for the lifetime of the process.
  const c10::impl::DeviceGuardImplRegistrar registrar(kDeviceType, new Guard);
}

}  // namespace sim
