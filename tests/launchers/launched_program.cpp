// launched_program [RANK WORLD_SIZE [PORT]]
//
// A rank. RANK and WORLD_SIZE are passed to init_process_group(), after MASTER_PORT has been set.

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>

#include "unisono/comm/process_group.h"

#include "all_reduce_ones.h"

int main(int argc, char** argv) {
  const std::span arguments(argv, static_cast<std::size_t>(argc));
  try {
    unisono::InitOptions options;
    if (arguments.size() > 2) {
      options.rank = std::atoi(arguments[1]);
      options.world_size = std::atoi(arguments[2]);
    }
    if (arguments.size() > 3) {
      ::setenv("MASTER_PORT", arguments[3], 1);
    }
    all_reduce_ones(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "launched_program: %s\n", error.what());
    return 1;
  }
}
