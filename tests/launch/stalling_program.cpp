// A training in which one rank stalls: stalling_program HOW RANK. All ranks reduce a number ten
// times. Before the fifth time, in the first generation, RANK
//
//   stops   stops itself;
//   sleeps  sleeps for ever and reports this;
//   loops   computes for ever;
//   pauses  comes late several times, but not for long;
//   owes    sleeps for ever, while the others receive a message from RANK.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include "unisono/base/buffer.h"
#include "unisono/comm/process_group.h"

namespace {

constexpr int kSteps = 10;
constexpr int kStallsAt = 5;
// Stall reports come after one second, and the abort comes after four.
constexpr std::chrono::milliseconds kPause{1500};
constexpr int kPauses = 4;

[[noreturn]] void sleep_for_ever() {
  while (true) {
    ::pause();
  }
}

[[noreturn]] void compute_for_ever() {
  volatile unsigned number = 1;
  while (true) {
    number = number * 3;
  }
}

void stall(std::string_view how, int step) {
  if (how == "pauses" && step <= kPauses) {
    std::this_thread::sleep_for(kPause);
  }
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here sets variables.
  const char* const count = std::getenv("TORCHELASTIC_RESTART_COUNT");
  if (step != kStallsAt || (count != nullptr && std::string_view(count) != "0")) {
    return;
  }
  std::printf("stalls\n");
  std::fflush(stdout);
  if (how == "stops") {
    ::raise(SIGSTOP);
  } else if (how == "sleeps" || how == "owes") {
    sleep_for_ever();
  } else if (how == "loops") {
    compute_for_ever();
  }
}

void train(std::string_view how, int late_rank) {
  const auto group = unisono::init_process_group();
  float sum = 1;
  for (int step = 1; step <= kSteps; ++step) {
    if (group->rank() == late_rank) {
      stall(how, step);
    } else if (how == "owes" && step == kStallsAt) {
      (void)group->recv(unisono::as_buffer(std::span<float>(&sum, 1)), late_rank);
    }
    group->all_reduce(unisono::as_buffer(std::span<float>(&sum, 1)));
    sum /= static_cast<float>(group->world_size());
  }
  std::printf("rank %d is done: %g\n", group->rank(), static_cast<double>(sum));
  unisono::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: stalling_program HOW RANK\n");
    return 2;
  }
  try {
    train(argv[1], std::stoi(argv[2]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stalling_program: %s\n", error.what());
    return 1;
  }
}
