#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "sim_device/stream.h"

namespace sim {

struct StreamKey {
  int device = 0;
  std::int64_t id = 0;  ///< 0 is the default stream.

  auto operator<=>(const StreamKey&) const = default;
};

/// All streams of a machine, made at their first use. Thread-safe.
class Streams {
 public:
  explicit Streams(StreamContext& context) : context_(context) {}

  Stream& get(StreamKey key);

  /// Returns the current stream of the calling thread on the device.
  Stream& current(int device);

  /// Returns the next of four shared streams of this priority, as a GPU's pool does.
  StreamKey next_of_pool(int device, bool high_priority);

  /// Returns a stream that no earlier call has returned.
  StreamKey make_new(int device);

  /// Blocks the host until all streams of the device are idle.
  void synchronize(int device);

  /// Ends the threads after their remaining tasks. Later calls of get() make new streams.
  void stop();

 private:
  std::vector<Stream*> all_of(int device);

  struct Numbers {
    unsigned next_low = 0;
    unsigned next_high = 0;
    std::int64_t next_new = 0;
  };

  StreamContext& context_;
  unisono::Mutex mutex_;
  std::map<StreamKey, std::unique_ptr<Stream>> streams_ UNISONO_GUARDED_BY(mutex_);
  std::array<Numbers, kDeviceCount> numbers_ UNISONO_GUARDED_BY(mutex_);
};

// The current device and the current streams belong to a thread and start at 0.

[[nodiscard]] int current_device();

/// Throws Error if the device does not exist.
void set_current_device(int device);

[[nodiscard]] std::int64_t current_stream_id(int device);

/// Returns the earlier current stream.
std::int64_t exchange_current_stream(StreamKey key);

}  // namespace sim
