#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"

namespace unisono::launch {

/// Calls back when descriptors become ready: the only place where agent and guardian wait.
/// For one thread.
class Poller {
 public:
  /// Gets the ready events, as epoll(7) has them.
  using Callback = std::function<void(std::uint32_t events)>;

  Poller();

  /// Watches `fd`, level-triggered, until remove(). Returns false for a descriptor that can't be
  /// waited for because it is always ready (a regular file, /dev/null).
  bool add(int fd, std::uint32_t events, Callback callback);

  /// Must come before the descriptor is closed. Does nothing for one that is not watched.
  void remove(int fd);

  /// Waits until something is ready or `deadline` passes, then calls back once for each ready
  /// descriptor, in the order in which they became ready.
  void run_once(Deadline deadline);

 private:
  Fd epoll_;
  // Shared with the call in progress: a callback may remove itself.
  std::unordered_map<int, std::shared_ptr<Callback>> callbacks_;
};

}  // namespace unisono::launch
