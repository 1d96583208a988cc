#pragma once

#include <sys/types.h>
#include <time.h>

namespace unisono::test {

/// Like printf(), but flushes at once for the reader of this process's output.
[[gnu::format(printf, 1, 2)]] void print(const char* format, ...);

/// Waits until the test closes this process's stdin.
void wait_for_end_of_stdin();

/// Returns the time of a clock in seconds.
[[nodiscard]] double seconds_of(clockid_t clock);

/// Returns the number of entries of a folder: /proc/self/fd, /proc/self/task.
[[nodiscard]] int n_entries(const char* folder);

/// Waits until the given thread of this process sleeps. Throws after 10 s.
void wait_until_asleep(pid_t thread);

}  // namespace unisono::test
