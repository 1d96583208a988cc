#pragma once

#include <cstdio>
#include <cstdlib>

namespace unisono::fuzz {

/// Ends the run with the message `what` unless `condition` holds, so that libFuzzer keeps the
/// input. Does not throw, because targets expect exceptions of the code under test.
inline void expect(bool condition, const char* what) {
  if (!condition) {
    std::fprintf(stderr, "not as promised: %s\n", what);
    std::abort();
  }
}

}  // namespace unisono::fuzz
