#include "unisono/torch/ddp/logical_ranks/logical_step.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "unisono/comm/process_group.h"
#include "unisono/data/random.h"
#include "unisono/torch/ddp/logical_ranks/shard_range.h"
#include "unisono/torch/ddp/reducer.h"
#include "unisono/torch/tensor/named_tensor.h"
#include "unisono/torch/tensor/random_state.h"

namespace unisono::ddp {

std::uint64_t shard_seed(std::uint64_t seed, std::int64_t step, int shard) {
  return Random::of_sample(static_cast<std::int64_t>(seed), step, shard).next();
}

LogicalStep::LogicalStep(std::shared_ptr<ProcessGroup> group,
                         const std::vector<NamedTensor>& buffers,
                         const LogicalStepOptions& options)
    : group_(std::move(group)),
      options_(options),
      shards_(shards_of(group_->rank(), group_->world_size(), options.n_shards)),
      buffers_(buffers, options.buffers, options.n_shards) {}

void LogicalStep::run(Reducer& reducer,
                      const std::function<void(bool)>& set_synchronized,
                      const std::function<void(int)>& run_shard) {
  const KeptRandomState kept;
  buffers_.begin();
  try {
    for (int shard = shards_.lo; shard < shards_.hi; ++shard) {
      const bool is_last = shard + 1 == shards_.hi;
      seed_random(shard_seed(options_.seed, step_, shard));
      buffers_.reset();
      set_synchronized(is_last);
      reducer.begin_shard(shard);
      run_shard(shard);
      reducer.end_shard();
      buffers_.take(shard);
    }
  } catch (...) {
    buffers_.reset();
    reducer.give_up_step();
    set_synchronized(true);
    throw;
  }
  buffers_.end(*group_, options_.timeout);
  ++step_;
}

}  // namespace unisono::ddp
