#include "unisono/data/pass.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "unisono/base/fnv.h"

namespace unisono::data {

std::span<const std::int64_t> BatchPlan::batch(std::int64_t number) const {
  const auto at = static_cast<std::size_t>(number);
  const std::size_t start = at == 0 ? 0 : ends[at - 1];
  return std::span(indices).subspan(start, ends[at] - start);
}

BatchPlan plan_batches(std::vector<std::int64_t> indices, std::int64_t batch_size, bool drop_last) {
  const auto n_full = static_cast<std::size_t>(batch_size);
  BatchPlan plan{.indices = std::move(indices), .ends = {}};
  std::size_t end = 0;
  while (end < plan.indices.size()) {
    const std::size_t n_left = plan.indices.size() - end;
    if (n_left < n_full && drop_last) {
      break;
    }
    end += std::min(n_full, n_left);
    plan.ends.push_back(end);
  }
  return plan;
}

BatchPlan plan_batches(const std::vector<std::vector<std::int64_t>>& batches) {
  BatchPlan plan;
  for (const std::vector<std::int64_t>& batch : batches) {
    plan.indices.insert(plan.indices.end(), batch.begin(), batch.end());
    plan.ends.push_back(plan.indices.size());
  }
  return plan;
}

std::uint64_t hash_of(const BatchPlan& plan) {
  std::uint64_t hash = kFnvStart;
  for (const std::int64_t index : plan.indices) {
    hash = fnv_step(hash, static_cast<std::uint64_t>(index));
  }
  for (const std::size_t end : plan.ends) {
    hash = fnv_step(hash, end);
  }
  return hash;
}

}  // namespace unisono::data
