#include "sim_device/streams.h"

#include <utility>

namespace sim {
namespace {

constexpr unsigned kPoolSize = 4;
constexpr std::int64_t kFirstLow = 1;
constexpr std::int64_t kFirstHigh = kFirstLow + kPoolSize;
constexpr std::int64_t kFirstNew = 100;

thread_local int thread_device = 0;
thread_local std::array<std::int64_t, kDeviceCount> thread_streams{};

std::size_t checked(int device) {
  if (device < 0 || device >= kDeviceCount) {
    throw Error("sim: there is no device sim:" + std::to_string(device) +
                "; the last is sim:" + std::to_string(kDeviceCount - 1));
  }
  return static_cast<std::size_t>(device);
}

}  // namespace

Stream& Streams::get(StreamKey key) {
  checked(key.device);
  const unisono::MutexLock lock(mutex_);
  std::unique_ptr<Stream>& stream = streams_[key];
  if (stream == nullptr) {
    stream = std::make_unique<Stream>(key.device, key.id, context_);
  }
  return *stream;
}

Stream& Streams::current(int device) {
  return get({device, current_stream_id(device)});
}

StreamKey Streams::next_of_pool(int device, bool high_priority) {
  const std::size_t index = checked(device);
  const unisono::MutexLock lock(mutex_);
  Numbers& numbers = numbers_[index];
  return high_priority ? StreamKey{device, kFirstHigh + numbers.next_high++ % kPoolSize}
                       : StreamKey{device, kFirstLow + numbers.next_low++ % kPoolSize};
}

StreamKey Streams::make_new(int device) {
  const std::size_t index = checked(device);
  const unisono::MutexLock lock(mutex_);
  return {device, kFirstNew + numbers_[index].next_new++};
}

std::vector<Stream*> Streams::all_of(int device) {
  const unisono::MutexLock lock(mutex_);
  std::vector<Stream*> found;
  for (const auto& [key, stream] : streams_) {
    if (key.device == device) {
      found.push_back(stream.get());
    }
  }
  return found;
}

void Streams::synchronize(int device) {
  checked(device);
  for (Stream* stream : all_of(device)) {
    stream->synchronize();
  }
}

void Streams::stop() {
  for (int device = 0; device < kDeviceCount; ++device) {
    synchronize(device);
  }
  std::map<StreamKey, std::unique_ptr<Stream>> ended;
  const unisono::MutexLock lock(mutex_);
  ended.swap(streams_);
}

int current_device() {
  return thread_device;
}

void set_current_device(int device) {
  thread_device = static_cast<int>(checked(device));
}

std::int64_t current_stream_id(int device) {
  return thread_streams[checked(device)];
}

std::int64_t exchange_current_stream(StreamKey key) {
  return std::exchange(thread_streams[checked(key.device)], key.id);
}

}  // namespace sim
