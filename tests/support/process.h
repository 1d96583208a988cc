#pragma once

#include <sys/types.h>
#include <time.h>

namespace unisono::test {

/// As printf(), and seen at once by who reads this process's output.
[[gnu::format(printf, 1, 2)]] void print(const char* format, ...);

/// Until the test closes this process's stdin.
void wait_for_end_of_stdin();

/// What a clock shows.
[[nodiscard]] double seconds_of(clockid_t clock);

/// How many names a folder has: /proc/self/fd, /proc/self/task.
[[nodiscard]] int n_entries(const char* folder);

/// Waits until that thread of this process sleeps; throws after 10 s.
void wait_until_asleep(pid_t thread);

}  // namespace unisono::test
