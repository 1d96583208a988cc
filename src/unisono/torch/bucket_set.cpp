#include "unisono/torch/bucket_set.h"

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "unisono/comm/process_group.h"
#include "unisono/torch/bucket_plan.h"
#include "unisono/torch/gradient_bucket.h"
#include "unisono/torch/named_tensor.h"
#include "unisono/torch/tensor.h"

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
  status_ = buckets_.back().element(plan.status_offset);
}

void BucketSet::deposit(std::size_t parameter) const {
  buckets_[bucket_of_[parameter]].deposit(slot_of_[parameter], parameters_[parameter]);
}

void BucketSet::launch(std::size_t bucket,
                       bool has_given_up,
                       std::optional<std::chrono::milliseconds> timeout) {
  if (bucket + 1 == buckets_.size()) {
    status_.fill_(has_given_up ? 1 : 0);
  }
  buckets_[bucket].launch(group_, timeout);
}

void BucketSet::wait() const {
  for (const GradientBucket& bucket : buckets_) {
    bucket.wait();
  }
}

bool BucketSet::has_a_rank_given_up() const {
  return status_.ne(0).item().toBool();
}

}  // namespace unisono::ddp
