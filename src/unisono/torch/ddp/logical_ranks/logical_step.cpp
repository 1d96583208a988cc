#include "unisono/torch/ddp/logical_ranks/logical_step.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/checkpoint/tensor_state.h"
#include "unisono/torch/ddp/logical_ranks/shard_range.h"
#include "unisono/torch/ddp/reducer.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {
namespace {

// SplitMix64's finalizer.
std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

void seed_generator(std::uint64_t seed) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::scoped_lock lock(generator.mutex());
  generator.set_current_seed(seed);
}

/// Gives the program its own random numbers back.
class KeptRandomState {
 public:
  KeptRandomState() : state_(random_state()) {}

  ~KeptRandomState() { set_random_state(state_); }

  KeptRandomState(const KeptRandomState&) = delete;
  KeptRandomState& operator=(const KeptRandomState&) = delete;
  KeptRandomState(KeptRandomState&&) = delete;
  KeptRandomState& operator=(KeptRandomState&&) = delete;

 private:
  at::Tensor state_;
};

}  // namespace

std::uint64_t shard_seed(std::uint64_t seed, std::int64_t step, int shard) {
  constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;
  const std::uint64_t of_step = mix(seed + kGolden) + static_cast<std::uint64_t>(step);
  return mix(mix(of_step + kGolden) + static_cast<std::uint64_t>(shard) + kGolden);
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
      seed_generator(shard_seed(options_.seed, step_, shard));
      buffers_.reset();
      set_synchronized(is_last);
      reducer.begin_shard(shard);
      run_shard(shard);
      reducer.end_shard();
      buffers_.take(shard);
    }
  } catch (...) {
    buffers_.reset();
    reducer.give_up_shards();
    set_synchronized(true);
    throw;
  }
  buffers_.end(*group_, options_.timeout);
  ++step_;
}

}  // namespace unisono::ddp
