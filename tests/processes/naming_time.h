#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "processes/job.h"

namespace unisono::test {

using Seconds = std::chrono::duration<double>;

/// Limit in which ranks of other nodes must name the lost rank. Code with a sanitizer needs longer.
inline constexpr std::chrono::milliseconds kBetweenNodes{kIsSanitized ? 5000 : 1000};

/// A machine with other load may be late at times, so one try within the limit is sufficient.
inline constexpr int kTries = 3;

/// Returns the time from `start` until the output of each of `ranks` contains `name`.
inline Seconds time_to_name(Job& job,
                            const std::vector<std::size_t>& ranks,
                            const std::string& name,
                            std::chrono::steady_clock::time_point start) {
  for (const std::size_t rank : ranks) {
    EXPECT_TRUE(job.processes().wait_for_output(rank, name));
  }
  return std::chrono::steady_clock::now() - start;
}

}  // namespace unisono::test
