#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "unisono/comm/process_group.h"

#include "memory.h"
#include "options.h"

namespace bench {

/// Seconds of each counted step; of the slowest rank in that step.
struct Measurement {
  std::vector<double> synchronized;    ///< Empty with --no-sync.
  std::vector<double> unsynchronized;  ///< Under no_sync(); empty where there is none.
  std::vector<double> plain;           ///< With --beside-plain: without the wrapper.
  int n_parameters = 0;
  Memory memory;  ///< Of all ranks, after the steps.
};

/// Trains with plain LibTorch, or with DataParallel.
Measurement measure_alone(const Options& options);

/// Trains with DistributedDataParallel; a collective operation. Steps with and without
/// synchronization alternate in short blocks, so that both see the same state of the machine.
Measurement measure_ranks(const std::shared_ptr<unisono::ProcessGroup>& group,
                          const Options& options);

/// Makes the steps of measure_alone() and returns the SHA-256 of the parameters.
std::string train_alone_and_hash(const Options& options);

/// The same with DistributedDataParallel; a collective operation.
std::string train_and_hash(const std::shared_ptr<unisono::ProcessGroup>& group,
                           const Options& options);

}  // namespace bench
