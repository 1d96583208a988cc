#include "support/process.h"

#include <time.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <filesystem>
#include <iterator>

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

}  // namespace unisono::test
