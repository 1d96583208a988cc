#pragma once

#include <cstdint>

#include "unisono/base/deadline.h"
#include "unisono/base/mutex.h"
#include "unisono/transport/remote/frame_stream.h"
#include "unisono/transport/remote/peer_table.h"
#include "unisono/transport/shm/endpoint.h"

namespace unisono::engine {

/// The sleep of a group's threads that wait for messages. At most one thread, the sleeper, sleeps
/// where peers can wake it: in a futex, or in poll(2) if it also waits for connections. The other
/// waiting threads depend on the sleeper or spin. While any thread spins, that thread receives all
/// packets, so that peers and new messages need not wake the sleeper.
///
/// Owned by PointToPointProgress, for the lifetime of the group. Not thread-safe: the owner's mutex
/// serializes all calls. Does not throw, except for std::bad_alloc.
class SleepState {
 public:
  /// The arguments must outlive the object.
  SleepState(shm::Endpoint& endpoint, tcp::PeerTable<tcp::PacketStream>& packet_streams)
      : endpoint_(endpoint), packet_streams_(packet_streams) {}

  [[nodiscard]] bool has_sleeper() const { return has_sleeper_; }

  /// Makes the calling thread the sleeper. From now on peers of this node ring the doorbell; the
  /// caller must then poll once more before it calls sleep(). With `with_network` the sleep also
  /// ends when a connection has data. Returns the argument of sleep().
  [[nodiscard]] std::uint32_t begin_sleep(bool with_network);

  /// Sleeps until a wake-up since begin_sleep(), or until `deadline`. The mutex is free during the
  /// sleep.
  void sleep(Mutex& mutex, std::uint32_t rings, Deadline deadline) UNISONO_REQUIRES(mutex);

  /// Ends the role of the sleeper.
  void end_sleep();

  /// Begins a spin of the calling thread, which polls for all messages until end_spinning().
  void begin_spinning() {
    if (n_spinning_++ == 0 && has_sleeper_) {
      endpoint_.stay();
    }
  }

  /// Ends a spin. Returns true if peers must wake the sleeper from now on; the caller must then
  /// poll once more, and call wake_after_spinning().
  [[nodiscard]] bool end_spinning();

  /// Wakes the sleeper if wake_sleeper() was called while a thread spun.
  void wake_after_spinning();

  /// Wakes the sleeper, for example because a new message requires it to wake earlier or to poll
  /// another connection. While a thread spins, the wake-up is postponed to the end of the spin.
  void wake_sleeper();

  /// Wakes the sleeper at once.
  void wake() const noexcept {
    endpoint_.wake();
    packet_streams_.wake();
  }

 private:
  void poll(Mutex& mutex, Deadline deadline) UNISONO_REQUIRES(mutex);

  shm::Endpoint& endpoint_;
  tcp::PeerTable<tcp::PacketStream>& packet_streams_;
  bool has_sleeper_ = false;
  bool with_network_ = false;  // The sleeper sleeps in poll(2).
  int n_spinning_ = 0;
  bool must_wake_ = false;  // A wake-up is postponed to the end of the spins.
};

}  // namespace unisono::engine
