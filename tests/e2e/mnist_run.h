#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "multiprocess/spawn.h"

namespace unisono::test {

/// `unisono run -n 2 mnist` with `arguments`, to its end.
[[nodiscard]] ProcessResult run_mnist(const std::vector<std::string>& arguments,
                                      std::chrono::seconds timeout = std::chrono::seconds(100));

/// The lines of `text` that begin with `start`, without it.
[[nodiscard]] std::vector<std::string> lines_after(const std::string& text,
                                                   const std::string& start);

}  // namespace unisono::test
