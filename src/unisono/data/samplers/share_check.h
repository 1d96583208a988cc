#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/dtype.h"
#include "unisono/data/samplers/sampler.h"

namespace unisono {

namespace data {

/// What a sampler deals by, as ranks tell each other.
struct ShareClaim {
  std::int64_t dataset_size = 0;
  std::int64_t num_replicas = 1;
  std::int64_t rank = 0;
  std::int64_t seed = 0;
  std::int64_t shuffle = 0;
  std::int64_t drop_last = 0;
};

static_assert(sizeof(ShareClaim) == 6 * sizeof(std::int64_t) &&
              std::is_trivially_copyable_v<ShareClaim>);

/// Throws Error(kMismatch) unless the claims, by rank, are those of samplers that share one order
/// among all of them.
void check_claims(std::span<const ShareClaim> claims);

}  // namespace data

/// Makes sure that the samplers of a group's ranks share one order: that no two deal the same
/// samples, as with a local rank in place of the group's, and none deals another data set, or by
/// another seed. One small all_gather(): all ranks call it, once, before they train.
///
/// Throws Error(kMismatch) on all ranks, with the ranks that don't fit; and what all_gather()
/// throws.
template <RankOfWorld Group, class DealingSampler>
void check_shares(Group& group, const DealingSampler& sampler) {
  data::ShareClaim own = sampler.claim();
  std::vector<data::ShareClaim> all(static_cast<std::size_t>(group.world_size()));
  constexpr auto kNumbers = static_cast<std::int64_t>(sizeof(own) / sizeof(std::int64_t));
  const Buffer in{.data = &own, .count = kNumbers, .dtype = DType::kInt64};
  const Buffer out{.data = all.data(),
                   .count = kNumbers * static_cast<std::int64_t>(all.size()),
                   .dtype = DType::kInt64};
  group.all_gather(in, out);
  data::check_claims(all);
}

}  // namespace unisono
