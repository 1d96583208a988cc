#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <torch/optim/optimizer.h>

#include "unisono/checkpoint/saver.h"
#include "unisono/comm/process_group.h"
#include "unisono/data/loader_base.h"

#include "net.h"

namespace mnist {

/// Where the training is, beside the net and the optimizer.
struct Position {
  std::int64_t epoch = 0;
  std::int64_t step = 0;      // of all epochs
  std::int64_t n_steps = 0;   // of this epoch
  std::int64_t n_images = 0;  // of this rank, in this epoch
  double loss_sum = 0;        // of this rank's steps in this epoch
};

/// Checkpoints from which a training with as many ranks goes on as if it had not been interrupted,
/// to the same bits. All members are collective operations.
class Checkpoints {
 public:
  Checkpoints(unisono::ProcessGroup& group, std::string folder);

  /// The latest one's folder, if there is any.
  std::optional<std::string> latest();

  /// Copies all that there is to save; it is written while the training goes on.
  void save(const Position& position,
            const unisono::LoaderState& loader,
            const NetImpl& net,
            const torch::optim::Optimizer& optimizer);

  struct Loaded {
    Position position;
    unisono::LoaderState loader;
  };

  /// Throws unisono::Error for a checkpoint of another number of ranks, another net or optimizer.
  Loaded load(const std::string& checkpoint, NetImpl& net, torch::optim::Optimizer& optimizer);

  /// Returns when the last one is on the disk.
  void wait();

 private:
  unisono::ProcessGroup& group_;
  std::string folder_;
  unisono::checkpoint::Saver saver_;
  std::string own_;  // what the names begin with that are this rank's
};

}  // namespace mnist
