#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "processes/spawn.h"

namespace unisono::test {

/// Runs `unisono run -n 2 mnist` with `arguments` until the end.
[[nodiscard]] ProcessResult run_mnist(const std::vector<std::string>& arguments,
                                      std::chrono::seconds timeout = std::chrono::seconds(100));

/// Returns the lines of `text` that begin with `start`, without `start`.
[[nodiscard]] std::vector<std::string> lines_after(const std::string& text,
                                                   const std::string& start);

}  // namespace unisono::test
