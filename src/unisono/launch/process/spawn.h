#pragma once

#include <signal.h>
#include <sys/types.h>

#include <array>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"

namespace unisono::launch {

/// As execve(2) takes them: with a null pointer at the end. `texts` has to stay as it is meanwhile.
[[nodiscard]] std::vector<char*> pointers(std::vector<std::string>& texts);

/// What the new process is to be. All pointers as execve(2) takes them.
struct SpawnRequest {
  const char* path = nullptr;
  char* const* argv = nullptr;
  char* const* environment = nullptr;
  std::array<int, 3> stdio{0, 1, 2};  ///< Become its descriptors 0, 1 and 2.
  int kept_fd = -1;                   ///< Stays open in it under the same number; -1: none.
  int death_signal = 0;               ///< What it gets when the calling thread ends.
  enum class Group { kNew, kParents };
  Group group = Group::kNew;        ///< Process group.
  std::span<const int> cores = {};  ///< Processors to be bound to; empty: those of its parent.
  sigset_t signal_mask{};
};

struct SpawnResult {
  pid_t pid = -1;            ///< -1 when there is no such process (any more).
  int error_number = 0;      ///< Not 0: the program does not run, for this reason.
  bool is_of_cores = false;  ///< The reason is that it could not be bound.
};

/// Starts a program and waits until it is executing or that has failed. Only async-signal-safe
/// calls happen between fork and exec. Gives up with ETIMEDOUT at `deadline`, with ECANCELED when
/// the other side of the socket `canceling_fd` (-1: none) is gone.
[[nodiscard]] SpawnResult spawn(const SpawnRequest& request, int canceling_fd, Deadline deadline);

}  // namespace unisono::launch
