#include "mnist_run.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <system_error>

#include <gtest/gtest.h>

namespace unisono::test {

ProcessResult run_mnist(const std::vector<std::string>& arguments, std::chrono::seconds timeout) {
  Processes processes(timeout);
  std::vector<std::string> command{UNISONO_PROGRAM, "run", "-n", "2", UNISONO_MNIST};
  command.insert(command.end(), arguments.begin(), arguments.end());
  (void)processes.start(std::move(command));
  return processes.finish().front();
}

std::vector<std::string> lines_after(const std::string& text, const std::string& start) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with(start)) {
      lines.push_back(line.substr(start.size()));
    }
  }
  return lines;
}

}  // namespace unisono::test
