#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <map>
#include <vector>

#include "unisono/base/fd.h"
#include "unisono/net/event_loop.h"

namespace unisono::launch {

/// Hears from the kernel that ranks have ended, independently of the guardian, which alone can tell
/// how. Watches nothing where the kernel has no pidfds.
class EndWatch {
 public:
  /// `on_end` is called on the loop, which must outlive the object, after each end.
  EndWatch(net::EventLoop& loop, std::function<void()> on_end);
  ~EndWatch();

  EndWatch(const EndWatch&) = delete;
  EndWatch& operator=(const EndWatch&) = delete;
  EndWatch(EndWatch&&) = delete;
  EndWatch& operator=(EndWatch&&) = delete;

  void add(std::size_t worker, pid_t pid);

  /// The guardian has told how it ended.
  void mark_reported(std::size_t worker);

  /// Those that have ended and of which the guardian has not told, in the order of their ends.
  [[nodiscard]] const std::vector<std::size_t>& unreported() const { return unreported_; }

  [[nodiscard]] bool is_unreported(std::size_t worker) const;

 private:
  void remove(std::size_t worker);

  net::EventLoop& loop_;
  std::function<void()> on_end_;
  std::map<std::size_t, Fd> pidfds_;
  std::vector<std::size_t> unreported_;
};

}  // namespace unisono::launch
