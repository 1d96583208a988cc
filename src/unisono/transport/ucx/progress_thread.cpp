#include "unisono/transport/ucx/progress_thread.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "unisono/base/mutex.h"
#include "unisono/base/thread.h"
#include "unisono/net/wakeup.h"
#include "unisono/transport/ucx/ucx_stream.h"

namespace unisono::ucx {
namespace {

// Between rounds: the ranks' threads look themselves while they wait.
constexpr std::chrono::microseconds kPause{500};

constexpr int kLookMs = 1000;

}  // namespace

// Never destroyed: streams may end after what is static.
ProgressThread& ProgressThread::instance() {
  static auto* const thread = new ProgressThread();
  return *thread;
}

void ProgressThread::add(UcxStream& stream) {
  const MutexLock changing(changing_);
  if (!thread_.joinable()) {
    wakeup_ = std::make_unique<net::Wakeup>();
    is_stopping_ = false;
    thread_ = start_thread(
        "unisono-ucx", "can't start the thread that moves UCX's bytes", [this] { run(); });
  }
  {
    const MutexLock lock(mutex_);
    streams_.push_back(&stream);
  }
  wakeup_->wake();
}

void ProgressThread::remove(UcxStream& stream) noexcept {
  const MutexLock changing(changing_);
  bool is_last = false;
  {
    const MutexLock lock(mutex_);
    std::erase(streams_, &stream);
    is_last = streams_.empty();
  }
  if (is_last && thread_.joinable()) {
    is_stopping_ = true;
    wakeup_->wake();
    thread_.join();
  }
}

void ProgressThread::run() noexcept {
  while (!is_stopping_) {
    std::vector<pollfd> polls;
    bool is_busy = false;
    try {
      polls.push_back({.fd = wakeup_->fd(), .events = POLLIN, .revents = 0});
      const MutexLock lock(mutex_);
      for (UcxStream* const stream : streams_) {
        is_busy = !stream->progress(polls) || is_busy;
      }
    } catch (const std::exception&) {
      is_busy = true;  // Out of memory, say.
    }
    if (!is_busy) {
      (void)::poll(polls.data(), polls.size(), kLookMs);
      wakeup_->clear();
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace unisono::ucx
