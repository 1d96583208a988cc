// A rank that leaves after its first barrier. Prints, in seconds: the start time (CLOCK_MONOTONIC,
// which all processes share), the time when the group was ready, the time when the barrier ended,
// and the CPU time from the start to the end of the barrier.
#include <time.h>

#include <cstdio>
#include <exception>

#include "unisono/comm/process_group.h"

namespace {

double seconds(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

}  // namespace

int main() {
  try {
    const double begin = seconds(CLOCK_MONOTONIC);
    const double cpu_before = seconds(CLOCK_PROCESS_CPUTIME_ID);
    const auto group = unisono::init_process_group();
    const double connected = seconds(CLOCK_MONOTONIC);
    group->barrier();
    const double end = seconds(CLOCK_MONOTONIC);
    const double used = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_before;
    unisono::destroy_process_group();
    std::printf("%.6f %.6f %.6f %.6f\n", begin, connected, end, used);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "first_barrier: %s\n", error.what());
    return 1;
  }
}
