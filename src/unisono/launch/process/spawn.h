#pragma once

#include <signal.h>
#include <sys/types.h>

#include <array>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"

namespace unisono::launch {

/// Returns pointers for execve(2), with a null pointer at the end. `texts` must not change while
/// the pointers are in use.
[[nodiscard]] std::vector<char*> pointers(std::vector<std::string>& texts);

/// Description of the new process. All pointers have the form that execve(2) takes.
struct SpawnRequest {
  const char* path = nullptr;
  char* const* argv = nullptr;
  char* const* environment = nullptr;
  std::array<int, 3> stdio{0, 1, 2};  ///< Become descriptors 0, 1 and 2 of the process.
  int kept_fd = -1;                   ///< Stays open under the same number; -1: no descriptor.
  int death_signal = 0;               ///< Signal to the process when the calling thread ends.
  /// Process group: a new group, or the group of the parent.
  enum class Group { kNew, kParents };
  Group group = Group::kNew;        ///< Process group.
  std::span<const int> cores = {};  ///< Processors to bind to; empty: those of the parent.
  sigset_t signal_mask{};
};

/// Result of spawn().
struct SpawnResult {
  pid_t pid = -1;            ///< -1 if the process does not exist (any more).
  int error_number = 0;      ///< Not 0: reason for which the program does not run.
  bool is_of_cores = false;  ///< The reason is a failed binding.
};

/// Starts a program and waits until exec has succeeded or failed. Only async-signal-safe calls
/// happen between fork and exec. Fails with ETIMEDOUT at `deadline`, and with ECANCELED when the
/// peer of the socket `canceling_fd` (-1: no socket) has closed.
[[nodiscard]] SpawnResult spawn(const SpawnRequest& request, int canceling_fd, Deadline deadline);

}  // namespace unisono::launch
