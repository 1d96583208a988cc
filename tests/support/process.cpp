#include "support/process.h"

#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>

namespace unisono::test {

void print(const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  std::vprintf(format, arguments);
  va_end(arguments);
  std::fflush(stdout);
}

void wait_for_end_of_stdin() {
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
}

double seconds_of(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

int n_entries(const char* folder) {
  using std::filesystem::directory_iterator;
  return static_cast<int>(std::distance(directory_iterator(folder), directory_iterator()));
}

void wait_until_asleep(pid_t thread) {
  using std::chrono::steady_clock;
  const auto give_up = steady_clock::now() + std::chrono::seconds(10);
  std::string state;
  while (state != "S") {
    if (steady_clock::now() > give_up) {
      throw std::runtime_error("thread " + std::to_string(thread) + " does not sleep: " + state);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    // The state follows the thread's number and its name, which contains no blanks.
    std::ifstream("/proc/self/task/" + std::to_string(thread) + "/stat") >> state >> state >> state;
  }
}

}  // namespace unisono::test
