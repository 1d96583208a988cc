#include "unisono/torch/ddp/bucket_set.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/error_text.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"
#include "unisono/torch/ddp/bucket_plan.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/gradient_bucket.h"
#include "unisono/torch/ddp/pass_marks.h"
#include "unisono/torch/tensor/named_tensor.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::ddp {
namespace {

BucketPlan plan_for(std::span<const NamedTensor> parameters,
                    const std::vector<bool>& is_sparse,
                    std::span<const std::size_t> order,
                    const BucketCaps& caps,
                    std::int64_t n_votes) {
  std::vector<GradientSpec> gradients;
  gradients.reserve(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& tensor = parameters[i].tensor;
    gradients.push_back(
        {.n_elems = is_sparse[i] ? 0 : tensor.numel(), .dtype = dtype_of(tensor.scalar_type())});
  }
  return plan_buckets(gradients, order, caps, n_votes);
}

// A hook that throws on one rank leaves the others waiting for its operations.
template <class Call>
BucketWork call_hook(ProcessGroup& group, const Call& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    group.abort(std::string("DistributedDataParallel: the communication hook failed: ") +
                error_text(error));
    throw;
  }
}

}  // namespace

BucketSet::BucketSet(ProcessGroup& group,
                     std::span<const NamedTensor> parameters,
                     const std::vector<bool>& is_sparse,
                     std::span<const std::size_t> order,
                     const BucketCaps& caps,
                     std::int64_t n_votes)
    : group_(group),
      parameters_(parameters),
      bucket_of_(parameters.size()),
      slot_of_(parameters.size()) {
  const BucketPlan plan = plan_for(parameters, is_sparse, order, caps, n_votes);
  for (std::size_t bucket = 0; bucket < plan.buckets.size(); ++bucket) {
    const BucketLayout& layout = plan.buckets[bucket];
    buckets_.emplace_back(group, layout, parameters, is_sparse, bucket);
    for (std::size_t slot = 0; slot < layout.slots.size(); ++slot) {
      bucket_of_[layout.slots[slot].parameter] = bucket;
      slot_of_[layout.slots[slot].parameter] = slot;
    }
  }
  marks_offset_ = plan.marks_offset;
  marks_ = buckets_.back().elements(plan.marks_offset, kMarkElems);
  votes_ = buckets_.front().elements(plan.votes_offset, n_votes);
}

void BucketSet::deposit(std::size_t parameter) const {
  buckets_[bucket_of_[parameter]].deposit(slot_of_[parameter], parameters_[parameter]);
}

void BucketSet::launch(std::size_t bucket,
                       const PassMarks& marks,
                       const CommHook& hook,
                       const ReduceBucketOptions& options) {
  const bool is_last = bucket + 1 == buckets_.size();
  if (is_last) {
    const bool is_summed = !hook && options.op.kind == ReduceKind::kSum;
    write_marks(marks_, marks, is_summed ? 1.0 / group_.world_size() : 1);
  }
  if (!hook) {
    buckets_[bucket].launch(group_, options);
    return;
  }
  launch_hook(bucket, hook, options.timeout);
  if (is_last) {
    launch_marks(options.timeout);
  }
}

void BucketSet::launch_hook(std::size_t bucket,
                            const CommHook& hook,
                            std::optional<std::chrono::milliseconds> timeout) {
  const bool is_last = bucket + 1 == buckets_.size();
  const std::int64_t n_elems = is_last ? marks_offset_ : buckets_[bucket].n_elems();
  const GradBucket for_hook = buckets_[bucket].for_hook(bucket, is_last, n_elems, timeout);
  of_hook_.push_back(call_hook(group_, [&] { return hook(for_hook); }));
}

void BucketSet::launch_marks(std::optional<std::chrono::milliseconds> timeout) {
  marks_work_ =
      all_reduce_async(group_, marks_, {.op = kAvg, .timeout = timeout, .label = "end of pass"});
}

void BucketSet::wait() {
  for (const GradientBucket& bucket : buckets_) {
    bucket.wait();
  }
  finish_hooks();
}

// All ranks go on with the same buckets, and so call operations in the same order.
void BucketSet::finish_hooks() {
  std::vector<BucketWork> works = std::exchange(of_hook_, {});
  for (const BucketWork& work : works) {
    work.work.wait();
  }
  std::exchange(marks_work_, {}).wait();
  while (!works.empty() && status() != PassStatus::kGivenUp) {
    std::erase_if(works, [](const BucketWork& work) { return !work.then; });
    for (BucketWork& work : works) {
      work = call_hook(group_, std::exchange(work.then, {}));
    }
    for (const BucketWork& work : works) {
      work.work.wait();
    }
  }
}

void BucketSet::multiply(double factor) const {
  for (std::size_t parameter = 0; parameter < parameters_.size(); ++parameter) {
    if (factor == 0) {
      view(parameter).zero_();
    } else {
      view(parameter).mul_(factor);
    }
  }
}

void BucketSet::divide(std::int64_t divisor) const {
  for (std::size_t parameter = 0; parameter < parameters_.size(); ++parameter) {
    view(parameter).div_(divisor);
  }
}

}  // namespace unisono::ddp
