#pragma once

#include <memory>
#include <vector>

#include "unisono/comm/process_group.h"

#include "workload.h"

namespace bench {

/// Seconds of each counted step; of the slowest rank in that step.
struct StepTimes {
  std::vector<double> synchronized;
  std::vector<double> unsynchronized;  ///< Under no_sync(); empty without a group.
};

/// Trains with plain LibTorch.
StepTimes measure_alone(const std::shared_ptr<Workload>& workload, int n_steps);

/// Trains with DistributedDataParallel; a collective operation. Steps with and without
/// synchronization alternate in short blocks, so that both see the same state of the machine.
StepTimes measure_ranks(const std::shared_ptr<unisono::ProcessGroup>& group,
                        const std::shared_ptr<Workload>& workload,
                        int n_steps);

}  // namespace bench
