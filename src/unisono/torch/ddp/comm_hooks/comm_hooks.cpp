#include "unisono/torch/ddp/comm_hooks/comm_hooks.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/topk.h>

#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/work.h"
#include "unisono/torch/ddp/average_gradients.h"
#include "unisono/torch/ddp/comm_hooks/hook_support.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono {
namespace {

BucketWork compress(ProcessGroup& group, const GradBucket& bucket, at::ScalarType type) {
  const at::Tensor& buffer = bucket.buffer();
  if (buffer.scalar_type() != at::kFloat && buffer.scalar_type() != at::kDouble) {
    return allreduce_hook(group, bucket);
  }
  const at::Tensor compressed = buffer.to(type);
  return {.work = ddp::average(group, compressed, bucket), .then = [buffer, compressed] {
            buffer.copy_(compressed);
            return BucketWork();
          }};
}

}  // namespace

BucketWork allreduce_hook(ProcessGroup& group, const GradBucket& bucket) {
  return {.work = ddp::average(group, bucket.buffer(), bucket)};
}

BucketWork fp16_compress_hook(ProcessGroup& group, const GradBucket& bucket) {
  return compress(group, bucket, at::kHalf);
}

BucketWork bf16_compress_hook(ProcessGroup& group, const GradBucket& bucket) {
  return compress(group, bucket, at::kBFloat16);
}

namespace {

// A matrix with one row per rank, and the all_gather that fills the matrix.
struct Gathered {
  at::Tensor rows;
  Work work;
};

Gathered gather(ProcessGroup& group, const at::Tensor& mine, const GradBucket& bucket) {
  const at::Tensor rows = at::empty({group.world_size(), mine.numel()}, mine.options());
  return {.rows = rows,
          .work = all_gather_async(
              group, mine, rows, {.timeout = bucket.timeout(), .label = bucket.label()})};
}

// Adds rank by rank, so that every rank makes the same roundings.
void add_up(const at::Tensor& buffer, const at::Tensor& places, const at::Tensor& values) {
  buffer.zero_();
  for (std::int64_t rank = 0; rank < places.size(0); ++rank) {
    buffer.index_add_(0, places[rank], values[rank]);
  }
  buffer.div_(places.size(0));
}

std::int64_t n_gradients(const GradBucket& bucket) {
  std::int64_t sum = 0;
  for (const at::Tensor& gradient : bucket.gradients()) {
    sum += gradient.numel();
  }
  return sum;
}

}  // namespace

TopKState::TopKState(std::shared_ptr<ProcessGroup> group, double ratio)
    : group_(std::move(group)), ratio_(ratio) {
  if (group_ == nullptr || !(ratio_ > 0 && ratio_ <= 1)) {
    std::ostringstream text;
    text << "TopKState: ratio is " << ratio_ << "; it must be above 0 and at most 1";
    throw Error(ErrorCode::kInvalidArgument,
                group_ == nullptr ? "TopKState: the process group is null" : text.str());
  }
}

BucketWork top_k_hook(TopKState& state, const GradBucket& bucket) {
  const at::Tensor& buffer = bucket.buffer();
  if (!at::isFloatingType(buffer.scalar_type()) || buffer.numel() == 0) {
    return allreduce_hook(*state.group_, bucket);
  }
  state.errors_.add_to(bucket);
  const auto n_wanted = std::llround(state.ratio_ * static_cast<double>(n_gradients(bucket)));
  const auto n_sent = std::clamp<std::int64_t>(n_wanted, 1, buffer.numel());
  const at::Tensor places =
      std::get<1>(at::topk(buffer.abs(), n_sent, /*dim=*/0, /*largest=*/true, /*sorted=*/false));
  const Gathered values = gather(*state.group_, buffer.index_select(0, places), bucket);
  const Gathered all_places = gather(*state.group_, places.to(at::kInt), bucket);
  return {.work = all_places.work, .then = [&state, bucket, places, all_places, values] {
            values.work.wait();
            const at::Tensor error = bucket.buffer().index_fill(0, places, 0);
            state.errors_.keep(bucket, error.nan_to_num_(0, 0, 0));
            add_up(bucket.buffer(), all_places.rows, values.rows);
            return BucketWork();
          }};
}

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
