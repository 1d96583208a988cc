#pragma once

#include <chrono>
#include <optional>

namespace unisono::launch {

/// What of a generation's end decides whether another one follows.
struct GenerationEnd {
  /// A rank has failed, or the guardian; no signal asks for the job's end, no process is left.
  bool has_failed = false;
  std::chrono::nanoseconds lifetime{};
};

/// Decides whether a job's ranks are started again.
class RestartPolicy {
 public:
  explicit RestartPolicy(int max_restarts) : max_restarts_(max_restarts) {}

  /// Uses up a restart and returns how long to wait before it; nothing where there is to be none.
  ///
  /// The first is due at once. Where generations keep failing soon after their start the next one
  /// waits, each time twice as long, up to ten seconds.
  [[nodiscard]] std::optional<std::chrono::milliseconds> restart_after(const GenerationEnd& end);

  [[nodiscard]] int n_used() const { return n_used_; }

  [[nodiscard]] int max_restarts() const { return max_restarts_; }

 private:
  int max_restarts_;
  int n_used_ = 0;
  std::chrono::milliseconds delay_{};
};

}  // namespace unisono::launch
