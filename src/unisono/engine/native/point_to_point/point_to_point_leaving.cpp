#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/engine/native/point_to_point/message.h"
#include "unisono/engine/native/point_to_point/message_operation.h"
#include "unisono/engine/native/point_to_point/point_to_point_progress.h"
#include "unisono/transport/tcp/packet_stream.h"

namespace unisono::engine {
namespace {

// Time for the peers to read why this rank gave up, or to answer what is no longer needed.
constexpr std::chrono::milliseconds kLinger{250};

// What was sent before its rank left is here by then.
constexpr std::chrono::seconds kReceivePatience{1};

}  // namespace

void PointToPointProgress::abort(const Error& reason) noexcept {
  const MutexLock lock(mutex_);
  abort_streams(reason);
}

void PointToPointProgress::abort_streams(const Error& reason) noexcept {
  if (std::exchange(has_aborted_, true)) {
    return;
  }
  adopt_delivered(std::chrono::milliseconds::zero());
  try {
    for (tcp::PacketStream* const stream : packet_streams_.peers()) {
      stream->frames().abort(reason);
    }
  } catch (const std::exception&) {
    return;  // Out of memory: the ends of the connections have to say it.
  }
}

// Ranks that this one never talked to hear of its end, too.
void PointToPointProgress::adopt_delivered(std::chrono::milliseconds linger) noexcept {
  try {
    packet_streams_.finish_dials(Deadline::after(linger));
  } catch (const std::exception&) {
    // One can't be reached: it can't be told.
    return;
  }
}

// Whoever comes later would take the end of a connection without a goodbye for a death.
void PointToPointProgress::close_door() noexcept {
  try {
    packet_streams_.close_door();
  } catch (const std::exception&) {
    return;  // Out of memory: the ends of the connections have to say it.
  }
}

void PointToPointProgress::give_up_receives() {
  for (Message* const message : matcher_.give_up_receives()) {
    auto& request = static_cast<MessageOperation&>(*message);
    fail_request(request,
                 Error(ErrorCode::kClosed,
                       fmt::format("{}: the process group was destroyed before a message came",
                                   name_of(request))));
  }
  show_waits();
  // Whose threads sleep.
  changed_.notify_all();
  wake();
}

bool PointToPointProgress::drain(Deadline deadline) {
  const MutexLock lock(mutex_);
  if (!std::exchange(is_stopping_, true)) {
    giving_up_ = Deadline::after(kReceivePatience);
    changed_.notify_all();
    wake();
  }
  while (!requests_.empty() || is_listening_) {
    if (giving_up_.has_passed()) {
      giving_up_ = Deadline::never();
      give_up_receives();
    } else if (deadline.has_passed()) {
      return false;
    } else if (const Deadline next = earlier(deadline, giving_up_); next.is_never()) {
      changed_.wait(mutex_);
    } else {
      (void)changed_.wait_until(mutex_, next.time());
    }
  }
  return true;
}

void PointToPointProgress::finish() {
  (void)drain(Deadline::never());
  std::thread progress;
  {
    const MutexLock lock(mutex_);
    progress = std::move(progress_thread_);
  }
  if (progress.joinable()) {
    progress.join();
  }
}

void PointToPointProgress::leave() noexcept {
  const MutexLock lock(mutex_);
  adopt_delivered(kLinger);
  close_door();
  const auto streams = packet_streams_.peers();
  for (tcp::PacketStream* const stream : streams) {
    if (!has_aborted_) {
      stream->frames().say_goodbye();
    }
  }
  const Deadline deadline =
      Deadline::after(has_aborted_ ? kLinger : std::chrono::milliseconds::zero());
  for (tcp::PacketStream* const stream : streams) {
    stream->frames().linger(deadline);
  }
}

}  // namespace unisono::engine
