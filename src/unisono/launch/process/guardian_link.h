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

/// The agent's handle of the guardian process.
///
/// run() creates the object before any thread exists, for the whole job. Used by a single thread,
/// because start() forks. start() throws Error(kSystem); end() kills an unresponsive guardian.
class GuardianLink {
 public:
  /// Starts a guardian. Call this before the process blocks signals, which ranks would inherit.
  /// Makes this process a subreaper, so that the processes of a killed guardian become its
  /// children. `program` must outlive the object. Throws Error(kSystem).
  explicit GuardianLink(const Program& program);

  /// Ends the guardian and its descendants, unless end() has done so.
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

  /// Resumes a guardian that was stopped.
  void wake() const;

  /// Ends the guardian with SIGKILL, and thereby all ranks. end() must follow.
  void kill() const;

  /// Closes the channel, so that the guardian kills all descendants and ends. Kills the guardian
  /// and the descendants if that takes too long; `on_reaped` receives the ends that the guardian
  /// did not see. Returns the processes that could not be ended.
  std::vector<pid_t> end(const OnReaped& on_reaped);

 private:
  [[nodiscard]] bool wait_for_guardian(Deadline deadline) const;

  const Program& program_;
  sigset_t signal_mask_{};  // Signal mask of the ranks.
  std::set<pid_t> spared_;
  Channel channel_;
  pid_t pid_ = -1;
};

}  // namespace unisono::launch
