// A rank.

#include <cstdio>
#include <exception>

#include "all_reduce_ones.h"

int main() {
  try {
    all_reduce_ones();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "launched_program: %s\n", error.what());
    return 1;
  }
}
