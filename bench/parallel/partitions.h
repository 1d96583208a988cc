#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "unisono/comm/process_group.h"

namespace bench {

struct ModelSize {
  /// Number of pairs of a linear layer that widens and a linear layer that narrows.
  int blocks = 4;
  int width = 256;  ///< Width of a block; the inner width is four times as large.
  int batch = 256;
};

/// A way to compute a step (forward, loss, backward) of one model with one batch on all ranks.
struct Partition {
  std::string name;
  /// A collective operation.
  std::function<void()> step;
  /// Returns the largest difference between the last step's output and gradients on this rank and
  /// the whole model's, relative to each tensor's largest element.
  std::function<double()> difference;
};

/// Returns three partitions: the whole model on rank 0, while the other ranks are idle ("whole");
/// blocks in sequence on different ranks, of which one computes at a time ("serial"); a part of
/// every layer on each rank ("parallel").
std::vector<Partition> make_partitions(const std::shared_ptr<unisono::ProcessGroup>& group,
                                       const ModelSize& size);

}  // namespace bench
