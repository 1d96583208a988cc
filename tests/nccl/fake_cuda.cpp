// Together with tests/cli/fake_libcuda.cpp a libcuda.so.1 for machines without GPUs. GPU memory is
// host memory, and a stream is a thread that executes its work in order. Calls that need a current
// context fail without one. FAKE_GPU_FAULT="second_event" makes every second cuEventCreate fail.
#include "fake_cuda.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr int kOutOfMemory = 2;
constexpr int kNoContext = 201;
constexpr int kNotReady = 600;

thread_local std::vector<int> current;

std::atomic<int> n_live = 0;

// Returns true for every second call while the fault is set.
bool fails_now() {
  static std::atomic<int> n_events = 0;
  const char* const fault = std::getenv("FAKE_GPU_FAULT");
  return fault != nullptr && std::string(fault) == "second_event" && n_events++ % 2 == 1;
}

class Stream {
 public:
  Stream() : thread_([this] { run(); }) {}

  ~Stream() {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void enqueue(std::function<void()> function) {
    {
      const std::lock_guard lock(mutex_);
      functions_.push_back(std::move(function));
    }
    changed_.notify_all();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return is_ending_ || !functions_.empty(); });
      if (functions_.empty()) {
        return;
      }
      const std::function<void()> function = std::move(functions_.front());
      functions_.pop_front();
      lock.unlock();
      function();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> functions_;
  bool is_ending_ = false;
  std::thread thread_;
};

struct Event {
  std::shared_ptr<std::atomic<bool>> is_done = std::make_shared<std::atomic<bool>>(true);
};

// All devices share one default stream.
Stream& stream_of(void* handle) {
  static Stream the_default;
  return handle == fake_cuda::default_stream() ? the_default : *static_cast<Stream*>(handle);
}

}  // namespace

namespace fake_cuda {

void enqueue(void* stream, std::function<void()> function) {
  stream_of(stream).enqueue(std::move(function));
}

int current_device() {
  return current.empty() ? -1 : current.back();
}

int n_live_handles() {
  return n_live;
}

}  // namespace fake_cuda

// NOLINTBEGIN(readability-identifier-naming): NVIDIA's names.
#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = reinterpret_cast<void*>(static_cast<std::intptr_t>(device));
  return 0;
}

EXPORTED int cuDevicePrimaryCtxRelease_v2(int /*device*/) {
  return 0;
}

EXPORTED int cuCtxPushCurrent_v2(void* context) {
  current.push_back(static_cast<int>(reinterpret_cast<std::intptr_t>(context)));
  return 0;
}

EXPORTED int cuCtxPopCurrent_v2(void** /*context*/) {
  if (current.empty()) {
    return kNoContext;
  }
  current.pop_back();
  return 0;
}

EXPORTED int cuStreamCreate(void** stream, unsigned /*flags*/) {
  if (current.empty()) {
    return kNoContext;
  }
  *stream = new Stream;
  ++n_live;
  return 0;
}

EXPORTED int cuStreamDestroy_v2(void* stream) {
  delete static_cast<Stream*>(stream);
  --n_live;
  return 0;
}

EXPORTED int cuEventCreate(void** event, unsigned /*flags*/) {
  if (current.empty()) {
    return kNoContext;
  }
  if (fails_now()) {
    return kOutOfMemory;
  }
  *event = new Event;
  ++n_live;
  return 0;
}

EXPORTED int cuEventDestroy_v2(void* event) {
  delete static_cast<Event*>(event);
  --n_live;
  return 0;
}

EXPORTED int cuEventRecord(void* event, void* stream) {
  auto is_done = std::make_shared<std::atomic<bool>>(false);
  static_cast<Event*>(event)->is_done = is_done;
  fake_cuda::enqueue(stream, [is_done] { is_done->store(true); });
  return current.empty() ? kNoContext : 0;
}

EXPORTED int cuEventQuery(void* event) {
  return static_cast<Event*>(event)->is_done->load() ? 0 : kNotReady;
}

EXPORTED int cuStreamWaitEvent(void* stream, void* event, unsigned /*flags*/) {
  fake_cuda::enqueue(stream, [is_done = static_cast<Event*>(event)->is_done] {
    while (!is_done->load()) {
      std::this_thread::yield();
    }
  });
  return 0;
}

EXPORTED int cuMemAlloc_v2(unsigned long long* address, std::size_t n_bytes) {
  *address = reinterpret_cast<std::uintptr_t>(std::malloc(n_bytes));
  return current.empty() ? kNoContext : 0;
}

EXPORTED int cuMemFree_v2(unsigned long long address) {
  std::free(reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)));
  return current.empty() ? kNoContext : 0;
}

// NOLINTEND(readability-identifier-naming)
