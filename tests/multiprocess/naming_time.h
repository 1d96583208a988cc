#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "multiprocess/job.h"

namespace unisono::test {

using Seconds = std::chrono::duration<double>;

/// By when ranks of other nodes have named what is lost. Code of a sanitizer takes its time.
inline constexpr std::chrono::milliseconds kBetweenNodes{kIsSanitized ? 5000 : 1000};

/// A machine that does other things as well may be late now and then: one try in time will do.
inline constexpr int kTries = 3;

/// By when all of `ranks` have named it.
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
