#include "unisono/engine/native/point_to_point/sleep_state.h"

#include <poll.h>

#include <utility>
#include <vector>

#include "unisono/transport/wait.h"

namespace unisono::engine {

std::uint32_t SleepState::begin_sleep(bool with_network) {
  has_sleeper_ = true;
  with_network_ = with_network;
  const std::uint32_t rings = endpoint_.prepare(with_network);
  if (with_network) {
    packet_streams_.clear_wakeups();
  }
  return rings;
}

void SleepState::sleep(Mutex& mutex, std::uint32_t rings, Deadline deadline) {
  if (with_network_) {
    poll(mutex, deadline);
    return;
  }
  mutex.unlock();
  endpoint_.sleep(rings, deadline);
  mutex.lock();
}

void SleepState::poll(Mutex& mutex, Deadline deadline) {
  std::vector<pollfd> polls;
  packet_streams_.add_polls(polls);
  deadline = earlier(deadline, packet_streams_.next_try());
  for (tcp::PacketStream* const stream : packet_streams_.peers()) {
    deadline = earlier(deadline, Deadline::after(transport::kLivenessLook));
    if (!stream->has_left()) {
      stream->frames().stream().add_polls(polls, true, stream->is_blocked());
    }
  }
  polls.push_back({.fd = endpoint_.bell_fd(), .events = POLLIN, .revents = 0});
  mutex.unlock();
  (void)::poll(polls.data(), polls.size(), deadline.poll_timeout_ms());
  mutex.lock();
}

void SleepState::end_sleep() {
  endpoint_.stay();
  has_sleeper_ = false;
}

bool SleepState::end_spinning() {
  if (--n_spinning_ > 0 || !has_sleeper_) {
    return false;
  }
  (void)endpoint_.prepare(with_network_);
  return true;
}

void SleepState::wake_after_spinning() {
  if (std::exchange(must_wake_, false)) {
    wake();
  }
}

void SleepState::wake_sleeper() {
  if (!has_sleeper_) {
    return;
  }
  if (n_spinning_ > 0) {
    must_wake_ = true;
  } else {
    wake();
  }
}

}  // namespace unisono::engine
