#pragma once

#include <sys/types.h>

#include <functional>
#include <set>
#include <vector>

#include "unisono/base/deadline.h"

namespace unisono::launch {

/// The direct children of this process, zombies among them.
[[nodiscard]] std::vector<pid_t> list_children();

/// Returns the programs that `shell` runs, also through shells below it: a signal to it is meant
/// for them. Empty where it is no shell, or handles SIGTERM itself.
[[nodiscard]] std::set<pid_t> programs_of_shell(pid_t shell);

/// Gets each process that was reaped, with its status as wait(2) gives it.
using OnReaped = std::function<void(pid_t pid, int status)>;

/// Reaps what has ended, without waiting. Returns false when this process has no children left.
bool reap_children(const OnReaped& on_reaped);

/// Waits for a SIGCHLD, which must be blocked, but no longer than 10 ms.
void wait_for_child_signal();

/// Kills all descendants of this process, which must be a subreaper, except the children in
/// `spared` and theirs. Returns what is still there at `deadline`.
///
/// Only direct children are ever signalled: their process ids can't be reused before we reap them,
/// and when one dies its children become ours. Parents go before children, so nobody restarts
/// what was killed. Requires that SIGCHLD is blocked.
std::vector<pid_t> kill_descendants(const std::set<pid_t>& spared,
                                    Deadline deadline,
                                    const OnReaped& on_reaped);

}  // namespace unisono::launch
