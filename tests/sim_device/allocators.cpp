#include <algorithm>
#include <cstring>

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "sim_device/machine.h"
#include "sim_device/torch_device.h"

namespace sim {
namespace {

void release(void* block) {
  machine().blocks.release(static_cast<BlockPool::Block*>(block));
}

c10::CachingAllocator::Stat stat_of(std::size_t current, std::size_t peak) {
  c10::CachingAllocator::Stat stat;
  stat.increase(peak);
  stat.decrease(peak - current);
  return stat;
}

/// Device memory of the current device, for its current stream. Stateless and thread-safe.
class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const int index = current_device();
    const c10::Device device(kDeviceType, static_cast<c10::DeviceIndex>(index));
    if (bytes == 0) {
      return {nullptr, nullptr, &c10::detail::deleteNothing, device};
    }
    BlockPool::Block* block = machine().blocks.allocate({index, current_stream_id(index)}, bytes);
    return {BlockPool::address(*block), block, &release, device};
  }

  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return nullptr; }

  void copy_data(void* target, const void* source, std::size_t bytes) const override {
    Machine& m = machine();
    const auto from = reinterpret_cast<std::uintptr_t>(source);
    const auto to = reinterpret_cast<std::uintptr_t>(target);
    const Access accesses[] = {{from, from + bytes, false, "the copy of a storage"},
                               {to, to + bytes, true, "the copy of a storage"}};
    m.streams.current(m.memory.device_of(target))
        .launch(
            [to_bytes = m.memory.alias(target), from_bytes = m.memory.alias(source), bytes] {
              std::memcpy(to_bytes, from_bytes, bytes);
            },
            accesses);
  }

  bool initialized() override { return true; }

  void emptyCache(c10::MempoolId_t /*pool*/) override {}

  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    machine().blocks.record_stream(data.get(), {stream.device_index(), stream.id()});
  }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const MemoryUsage usage = machine().blocks.usage(device);
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocation[0] = stat_of(usage.n_blocks, usage.n_blocks);
    stats.allocated_bytes[0] = stat_of(usage.allocated, usage.peak_allocated);
    stats.reserved_bytes[0] = stat_of(usage.reserved, usage.reserved);
    return stats;
  }

  void resetAccumulatedStats(c10::DeviceIndex /*device*/) override {}

  void resetPeakStats(c10::DeviceIndex device) override { machine().blocks.reset_peak(device); }

  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex device) override {
    return {kBytesPerDevice - machine().blocks.usage(device).reserved, kBytesPerDevice};
  }
};

/// Pinned host memory. Stateless and thread-safe.
class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) {
      return {nullptr, c10::Device(c10::kCPU)};
    }
    BlockPool::Block* block = machine().blocks.allocate_pinned(bytes);
    return {BlockPool::address(*block), block, &release, c10::Device(c10::kCPU)};
  }

  void copy_data(void* target, const void* source, std::size_t bytes) const override {
    std::memcpy(target, source, bytes);
  }

  bool record_event(void* pointer, void* /*context*/, c10::Stream stream) override {
    return machine().blocks.is_pinned(pointer) &&
           machine().blocks.record_stream(pointer, {stream.device_index(), stream.id()});
  }

  void empty_cache() override {}

  at::HostStats get_stats() override {
    const MemoryUsage usage = machine().blocks.pinned_usage();
    at::HostStats stats;
    stats.active_bytes = stat_of(usage.allocated, usage.peak_allocated);
    stats.allocated_bytes = stat_of(usage.reserved, usage.reserved);
    return stats;
  }

  void reset_accumulated_stats() override {}

  void reset_peak_stats() override {}
};

}  // namespace

c10::DeviceAllocator& device_allocator() {
  static auto* const allocator = new DeviceAllocator;
  return *allocator;
}

at::HostAllocator& pinned_allocator() {
  static auto* const allocator = new PinnedAllocator;
  return *allocator;
}

void register_allocators() {
  c10::SetAllocator(kDeviceType, &device_allocator());
  at::setHostAllocator(kDeviceType, &pinned_allocator());
}

}  // namespace sim
