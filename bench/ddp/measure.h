#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "unisono/comm/process_group.h"

#include "memory.h"
#include "options.h"

namespace bench {

/// Time of each counted step in seconds: the time of the slowest rank in that step.
struct Measurement {
  std::vector<double> synchronized;    ///< Empty with --no-sync.
  std::vector<double> unsynchronized;  ///< Under no_sync(); empty if not measured.
  std::vector<double> plain;           ///< With --beside-plain: steps without the wrapper.
  int n_parameters = 0;
  Memory memory;  ///< Sum of all ranks after the steps.
};

/// Trains with plain LibTorch or with DataParallel.
Measurement measure_alone(const Options& options);

/// Trains with DistributedDataParallel; a collective operation. Steps with and without
/// synchronization alternate in short blocks, so that both see the same state of the machine.
Measurement measure_ranks(const std::shared_ptr<unisono::ProcessGroup>& group,
                          const Options& options);

/// Runs the steps of measure_alone() and returns the SHA-256 of the parameters.
std::string train_alone_and_hash(const Options& options);

/// Like train_alone_and_hash(), but with DistributedDataParallel. A collective operation.
std::string train_and_hash(const std::shared_ptr<unisono::ProcessGroup>& group,
                           const Options& options);

}  // namespace bench
