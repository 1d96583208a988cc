#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "unisono/comm/process_group.h"

namespace bench {

struct Options {
  std::string operation;
  std::string folder;
  std::int64_t n_mib = 1024;  // of all ranks
  int n_times = 2;
};

/// What one rank measured.
struct Measured {
  std::vector<double> seconds;  // of each time
  /// The most memory beside the state that is saved or loaded, as a share of it.
  double more_memory = 0;
};

/// The names of the operations.
std::vector<std::string> operation_names();

/// Throws unisono::Error, and std::runtime_error for what has been loaded wrongly.
Measured measure(unisono::ProcessGroup& group, const Options& options);

}  // namespace bench
