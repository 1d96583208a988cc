#include "unisono/torch/ddp/comm_hooks/top_k.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <sstream>
#include <tuple>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/topk.h>

#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/comm_hooks/comm_hooks.h"
#include "unisono/torch/tensor/collectives.h"

namespace unisono {
namespace {

// A row for each rank, and the gathering of it.
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

// Rank by rank, so that every rank makes the same roundings.
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

}  // namespace unisono
