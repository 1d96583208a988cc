#pragma once

#include <signal.h>
#include <sys/types.h>

#include <set>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/launch/process/channel.h"
#include "unisono/launch/process/children.h"
#include "unisono/launch/program.h"

namespace unisono::launch {

/// The agent's hold on its guardian process.
class GuardianLink {
 public:
  /// Starts a guardian. To be called before this process blocks signals, which ranks would inherit.
  /// Makes this process a subreaper, so that what a killed guardian leaves behind comes to us.
  /// `program` must outlive the object. Throws Error(kSystem).
  explicit GuardianLink(const Program& program);

  /// Ends guardian and descendants if that has not happened.
  ~GuardianLink();

  GuardianLink(const GuardianLink&) = delete;
  GuardianLink& operator=(const GuardianLink&) = delete;
  GuardianLink(GuardianLink&&) = delete;
  GuardianLink& operator=(GuardianLink&&) = delete;

  /// Starts another guardian after end(). Forks, so this process must have no other threads. Throws
  /// Error(kSystem).
  void start();

  [[nodiscard]] Channel& channel() { return channel_; }

  [[nodiscard]] pid_t pid() const { return pid_; }

  /// Lets a guardian that was stopped go on.
  void wake() const;

  /// Ends it with SIGKILL, and through that all ranks; to be followed by end().
  void kill() const;

  /// Closes the channel, on which the guardian kills what there is and ends; does its work where
  /// it does not: `on_reaped` gets the ends that it did not see. Returns what could not be ended.
  std::vector<pid_t> end(const OnReaped& on_reaped);

 private:
  [[nodiscard]] bool wait_for_guardian(Deadline deadline) const;

  const Program& program_;
  sigset_t signal_mask_{};  // For ranks.
  std::set<pid_t> spared_;
  Channel channel_;
  pid_t pid_ = -1;
};

}  // namespace unisono::launch
