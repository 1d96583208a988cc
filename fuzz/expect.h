#pragma once

#include <cstdio>
#include <cstdlib>

namespace unisono::fuzz {

/// Ends the run with `what`, and so makes libFuzzer keep the input, unless `condition` holds. Not
/// an exception: the code under test has its own, which targets expect.
inline void expect(bool condition, const char* what) {
  if (!condition) {
    std::fprintf(stderr, "not as promised: %s\n", what);
    std::abort();
  }
}

}  // namespace unisono::fuzz
