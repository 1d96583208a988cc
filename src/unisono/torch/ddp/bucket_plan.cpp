#include "unisono/torch/ddp/bucket_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/torch/ddp/pass_flags.h"

namespace unisono::ddp {
namespace {

constexpr std::int64_t kAlignBytes = 64;

std::int64_t aligned(std::int64_t n_elems, DType dtype) {
  const std::int64_t step = kAlignBytes / static_cast<std::int64_t>(size_of(dtype));
  return (n_elems + step - 1) / step * step;
}

// A bucket that may still grow, and the position of its first gradient in the order.
struct OpenBucket {
  BucketLayout layout;
  std::size_t place;
};

void check_order(std::span<const std::size_t> order, std::size_t n_parameters) {
  std::vector<bool> is_seen(n_parameters, false);
  for (const std::size_t parameter : order) {
    UNISONO_CHECK(parameter < n_parameters && !is_seen[parameter],
                  "the order of gradients is not a permutation");
    is_seen[parameter] = true;
  }
  UNISONO_CHECK(n_parameters > 0 && order.size() == n_parameters,
                "the order of gradients does not hold every parameter");
}

}  // namespace

std::vector<std::size_t> reverse_order(std::size_t n_parameters) {
  std::vector<std::size_t> order(n_parameters);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return order;
}

BucketPlan plan_buckets(std::span<const GradientSpec> gradients,
                        std::span<const std::size_t> order,
                        const BucketCaps& caps,
                        std::int64_t n_votes) {
  check_order(order, gradients.size());
  std::vector<OpenBucket> closed;
  std::map<DType, OpenBucket> open;
  std::map<DType, int> n_closed;
  for (std::size_t place = 0; place < order.size(); ++place) {
    const GradientSpec& gradient = gradients[order[place]];
    OpenBucket& bucket =
        open.try_emplace(gradient.dtype, OpenBucket{{gradient.dtype, {}, 0}, place}).first->second;
    const std::int64_t offset = aligned(bucket.layout.n_elems, gradient.dtype);
    bucket.layout.slots.push_back({.parameter = order[place], .offset = offset});
    bucket.layout.n_elems = offset + gradient.n_elems;
    const std::int64_t n_bytes =
        bucket.layout.n_elems * static_cast<std::int64_t>(size_of(gradient.dtype));
    if (n_bytes >= (n_closed[gradient.dtype] == 0 ? caps.first_bytes : caps.bytes)) {
      closed.push_back(std::move(bucket));
      open.erase(gradient.dtype);
      ++n_closed[gradient.dtype];
    }
  }
  for (auto& [dtype, bucket] : open) {
    closed.push_back(std::move(bucket));
  }
  std::ranges::sort(closed, {}, &OpenBucket::place);

  BucketPlan plan;
  for (OpenBucket& bucket : closed) {
    plan.buckets.push_back(std::move(bucket.layout));
  }
  if (n_votes > 0) {
    BucketLayout& first = plan.buckets.front();
    plan.votes_offset = aligned(first.n_elems, first.dtype);
    first.n_elems = plan.votes_offset + n_votes;
  }
  BucketLayout& last = plan.buckets.back();
  plan.flags_offset = aligned(last.n_elems, last.dtype);
  last.n_elems = plan.flags_offset + kFlagBits;
  return plan;
}

}  // namespace unisono::ddp
