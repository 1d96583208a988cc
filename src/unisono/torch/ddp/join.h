#pragma once

#include <functional>
#include <vector>

namespace unisono {

/// Names and defaults are PyTorch's. Equal on every rank.
struct JoinOptions {
  /// Gradients are divided by the number of all ranks; false: by that of the ranks that still have
  /// batches. True where a communication hook leaves gradients on their rank, as
  /// post_local_sgd_hook() does: false multiplies these, too.
  bool divide_by_initial_world_size = true;
  /// Instead of going on without a rank that is done, all ranks throw Error(kMismatch).
  bool throw_on_early_termination = false;
};

namespace ddp {

class Replica;

/// unisono::join() of the replicas, of which there is one at least.
int run_joined(const std::vector<Replica*>& replicas,
               const JoinOptions& options,
               const std::function<void()>& loop);

}  // namespace ddp
}  // namespace unisono
