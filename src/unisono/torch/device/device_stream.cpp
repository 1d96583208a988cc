#include "unisono/torch/device/device_stream.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include <ATen/DeviceAccelerator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/base/thread.h"

namespace unisono {
namespace {

// Polls in a tight loop; a query of an event takes about a microsecond.
constexpr int kSpins = 50;
constexpr std::chrono::microseconds kFirstNap{10};
constexpr std::chrono::microseconds kLongestNap{1000};

c10::impl::VirtualGuardImpl guard_of(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type());
}

c10::Stream choose_stream(at::Device device, DeviceStream::Direction direction) {
  using Key = std::pair<at::Device, DeviceStream::Direction>;

  struct Less {
    bool operator()(const Key& a, const Key& b) const {
      return std::tuple(a.first.type(), a.first.index(), a.second) <
             std::tuple(b.first.type(), b.first.index(), b.second);
    }
  };

  static Mutex mutex;
  static std::map<Key, c10::Stream, Less> streams;
  const MutexLock lock(mutex);
  const Key key(device, direction);
  const auto known = streams.find(key);
  if (known != streams.end()) {
    return known->second;
  }
  return streams.emplace(key, guard_of(device).getStreamFromGlobalPool(device)).first->second;
}

void check_device(at::Device device) {
  if (device.is_cpu()) {
    throw Error(ErrorCode::kInvalidArgument, "the CPU has no streams");
  }
  const int n_devices = c10::impl::hasDeviceGuardImpl(device.type())
                            ? static_cast<int>(guard_of(device).deviceCount())
                            : 0;
  if (device.index() < 0 || device.index() >= n_devices) {
    throw Error(ErrorCode::kInvalidArgument,
                "device " + device.str() + " does not exist: this process has " +
                    std::to_string(n_devices) + " of this type");
  }
}

}  // namespace

DeviceStream::DeviceStream(at::Device device, Direction direction)
    : stream_((check_device(device), choose_stream(device, direction))) {}

c10::Event DeviceStream::record() const {
  c10::Event event(stream_.device_type());
  event.record(stream_);
  return event;
}

void DeviceStream::keep(const at::Tensor& tensor) const {
  guard_of(stream_.device()).recordDataPtrOnStream(tensor.storage().data_ptr(), stream_);
}

c10::Event record_current(at::Device device) {
  c10::Event event(device.type());
  event.record(guard_of(device).getStream(device));
  return event;
}

void make_current_wait(at::Device device, const c10::Event& event) {
  event.block(guard_of(device).getStream(device));
}

void UsedStreams::add_current(at::Device device) {
  const c10::Stream current = guard_of(device).getStream(device);
  if (std::ranges::find(streams_, current) == streams_.end()) {
    streams_.push_back(current);
  }
}

void UsedStreams::make_current_wait(at::Device device) {
  const c10::Stream current = guard_of(device).getStream(device);
  for (const c10::Stream& stream : std::exchange(streams_, {})) {
    if (stream != current) {
      c10::Event event(device.type());
      event.record(stream);
      event.block(current);
    }
  }
}

void await_event(const c10::Event& event, Deadline deadline) {
  Deadline next_interruption = next_interruption_check();
  std::chrono::microseconds nap = kFirstNap;
  for (int n_polls = 0;; ++n_polls) {
    try {
      if (event.query()) {
        return;
      }
    } catch (const c10::Error& error) {
      throw Error(ErrorCode::kSystem,
                  "the device has failed: " + std::string(error.what_without_backtrace()));
    }
    if (n_polls < kSpins) {
      continue;
    }
    if (next_interruption.has_passed()) {
      next_interruption = next_interruption_check();
      check_interruption();
    }
    if (deadline.has_passed()) {
      throw Error(ErrorCode::kTimeout,
                  "device " + event.device().str() +
                      " has not finished the work on which the tensor depends; a kernel that does "
                      "not end, or a stream that waits for another rank, is the usual cause");
    }
    std::this_thread::sleep_for(nap);
    nap = std::min(2 * nap, kLongestNap);
  }
}

bool has_accelerator() {
  return at::accelerator::deviceCount() > 0;
}

}  // namespace unisono
