#include "unisono/torch/ddp/comm_hooks/post_local_sgd.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/average_gradients.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/comm_hooks/comm_hooks.h"

namespace unisono {

BucketWork post_local_sgd_hook(PostLocalSgdState& state, const GradBucket& bucket) {
  const bool is_local = state.n_passes >= state.start_local_sgd_iter;
  ProcessGroup* const group = is_local ? state.subgroup.get() : state.group.get();
  if (!is_local && group == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "PostLocalSgdState: the process group is null");
  }
  state.n_passes += bucket.is_last() ? 1 : 0;
  return group == nullptr ? BucketWork() : allreduce_hook(*group, bucket);
}

PeriodicModelAverager::PeriodicModelAverager(std::shared_ptr<ProcessGroup> group,
                                             std::int64_t period,
                                             std::int64_t warmup_steps)
    : group_(std::move(group)), period_(period), warmup_steps_(warmup_steps) {
  if (group_ == nullptr || period_ <= 0 || warmup_steps_ < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                group_ == nullptr ? std::string("PeriodicModelAverager: the process group is null")
                                  : "PeriodicModelAverager: period is " + std::to_string(period_) +
                                        " and warmup_steps " + std::to_string(warmup_steps_) +
                                        "; they must be 1 and 0 or greater");
  }
}

void PeriodicModelAverager::average_parameters(const std::vector<at::Tensor>& parameters) {
  const std::int64_t step = n_steps_++;
  if (step >= warmup_steps_ && (step - warmup_steps_) % period_ == 0) {
    unisono::average_parameters(*group_, parameters);
  }
}

}  // namespace unisono
