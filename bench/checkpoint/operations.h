#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "unisono/comm/process_group.h"

namespace bench {

struct Options {
  std::string operation;
  std::string folder;
  std::int64_t n_mib = 1024;  // Total over all ranks.
  int n_times = 2;
};

/// Measurements of one rank.
struct Measured {
  std::vector<double> seconds;  // Time of each repetition.
  /// Peak of the memory in addition to the saved or loaded state, as a fraction of the state.
  double more_memory = 0;
};

/// Returns the names of the operations.
std::vector<std::string> operation_names();

/// Throws unisono::Error, and std::runtime_error if loaded data is wrong.
Measured measure(unisono::ProcessGroup& group, const Options& options);

}  // namespace bench
