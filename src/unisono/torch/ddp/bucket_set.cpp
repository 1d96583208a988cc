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

#include "unisono/base/reduce_kind.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"
#include "unisono/torch/ddp/bucket_plan.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/gradient_bucket.h"
#include "unisono/torch/tensor/named_tensor.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::ddp {
namespace {

BucketPlan plan_for(std::span<const NamedTensor> parameters,
                    std::span<const std::size_t> order,
                    const BucketCaps& caps) {
  std::vector<GradientSpec> gradients;
  gradients.reserve(parameters.size());
  for (const NamedTensor& parameter : parameters) {
    gradients.push_back(
        {.n_elems = parameter.tensor.numel(), .dtype = dtype_of(parameter.tensor.scalar_type())});
  }
  return plan_buckets(gradients, order, caps);
}

// Means over the ranks tell whether any, of up to 5000, has given up, in any type of gradients.
constexpr double kLeastGivenUp = 2;

double number_of(PassStatus status) {
  switch (status) {
    case PassStatus::kGood:
      return 0;
    case PassStatus::kNonFinite:
      return 1;
    case PassStatus::kGivenUp:
      return 1e4;
  }
  return 0;
}

// A hook that throws on one rank leaves the others waiting for its operations.
template <class Call>
BucketWork call_hook(ProcessGroup& group, const Call& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    group.abort(std::string("DistributedDataParallel: the communication hook failed: ") +
                error.what());
    throw;
  }
}

}  // namespace

BucketSet::BucketSet(ProcessGroup& group,
                     std::span<const NamedTensor> parameters,
                     std::span<const std::size_t> order,
                     const BucketCaps& caps)
    : group_(group),
      parameters_(parameters),
      bucket_of_(parameters.size()),
      slot_of_(parameters.size()) {
  const BucketPlan plan = plan_for(parameters, order, caps);
  for (std::size_t bucket = 0; bucket < plan.buckets.size(); ++bucket) {
    const BucketLayout& layout = plan.buckets[bucket];
    buckets_.emplace_back(group, layout, parameters, bucket);
    for (std::size_t slot = 0; slot < layout.slots.size(); ++slot) {
      bucket_of_[layout.slots[slot].parameter] = bucket;
      slot_of_[layout.slots[slot].parameter] = slot;
    }
  }
  status_offset_ = plan.status_offset;
  status_ = buckets_.back().element(plan.status_offset);
}

void BucketSet::deposit(std::size_t parameter) const {
  buckets_[bucket_of_[parameter]].deposit(slot_of_[parameter], parameters_[parameter]);
}

void BucketSet::launch(std::size_t bucket,
                       PassStatus status,
                       const CommHook& hook,
                       const ReduceBucketOptions& options) {
  const bool is_last = bucket + 1 == buckets_.size();
  if (is_last) {
    const bool is_summed = !hook && options.op.kind == ReduceKind::kSum;
    status_.fill_(number_of(status) / (is_summed ? group_.world_size() : 1));
  }
  if (!hook) {
    buckets_[bucket].launch(group_, options);
    return;
  }
  launch_hook(bucket, hook, options.timeout);
  if (is_last) {
    launch_status(options.timeout);
  }
}

void BucketSet::launch_hook(std::size_t bucket,
                            const CommHook& hook,
                            std::optional<std::chrono::milliseconds> timeout) {
  const bool is_last = bucket + 1 == buckets_.size();
  const std::int64_t n_elems = is_last ? status_offset_ : buckets_[bucket].n_elems();
  const GradBucket for_hook = buckets_[bucket].for_hook(bucket, is_last, n_elems, timeout);
  of_hook_.push_back(call_hook(group_, [&] { return hook(for_hook); }));
}

void BucketSet::launch_status(std::optional<std::chrono::milliseconds> timeout) {
  status_work_ =
      all_reduce_async(group_, status_, {.op = kAvg, .timeout = timeout, .label = "end of pass"});
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
  std::exchange(status_work_, {}).wait();
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

void BucketSet::divide(int divisor) const {
  for (std::size_t parameter = 0; parameter < parameters_.size(); ++parameter) {
    view(parameter).div_(divisor);
  }
}

PassStatus BucketSet::status() const {
  const double mean = status_.item().toDouble();
  if (mean == 0) {
    return PassStatus::kGood;
  }
  return mean < kLeastGivenUp ? PassStatus::kNonFinite : PassStatus::kGivenUp;
}

}  // namespace unisono::ddp
