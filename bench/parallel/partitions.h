#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "unisono/comm/process_group.h"

namespace bench {

struct ModelSize {
  int blocks = 4;   ///< Pairs of a linear layer that widens and one that narrows again.
  int width = 256;  ///< The inner features are four times as many.
  int batch = 256;
};

/// A way to compute a step (forward, loss, backward) of one model with one batch on all ranks.
struct Partition {
  std::string name;
  /// A collective operation.
  std::function<void()> step;
  /// How far the last step's output and gradients, those that this rank has, are from the whole
  /// model's: the largest difference, of each tensor's largest element.
  std::function<double()> difference;
};

/// The whole model on rank 0, while the others do nothing ("whole"); blocks one after the other on
/// as many ranks, of which one computes while the others wait ("serial"); a part of every layer on
/// each rank ("parallel").
std::vector<Partition> make_partitions(const std::shared_ptr<unisono::ProcessGroup>& group,
                                       const ModelSize& size);

}  // namespace bench
