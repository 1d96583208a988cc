#include "unisono/data/samplers/share_check.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "unisono/base/error.h"

namespace unisono::data {
namespace {

[[noreturn]] void throw_mismatch(const std::string& problem) {
  throw Error(ErrorCode::kMismatch, "check_shares: " + problem);
}

void check_number_of_replicas(std::span<const ShareClaim> claims) {
  for (std::size_t rank = 0; rank < claims.size(); ++rank) {
    if (claims[rank].num_replicas != static_cast<std::int64_t>(claims.size())) {
      throw_mismatch(
          fmt::format("rank {} deals to {} replicas in a group of {} ranks; give the "
                      "sampler the group, or its world size",
                      rank,
                      claims[rank].num_replicas,
                      claims.size()));
    }
  }
}

void check_replicas_differ(std::span<const ShareClaim> claims) {
  std::map<std::int64_t, std::size_t> rank_of_replica;
  std::string doubled;
  for (std::size_t rank = 0; rank < claims.size(); ++rank) {
    const auto [first, is_new] = rank_of_replica.try_emplace(claims[rank].rank, rank);
    if (!is_new && doubled.empty()) {
      doubled = fmt::format(
          "ranks {} and {} both deal the samples of replica {}", first->second, rank, first->first);
    }
  }
  if (doubled.empty()) {
    return;
  }
  std::int64_t missing = 0;
  while (rank_of_replica.contains(missing)) {
    ++missing;
  }
  throw_mismatch(
      fmt::format("{}, and nobody those of replica {}, in a group of {} ranks; give the "
                  "sampler the group, or its rank, not the local rank",
                  doubled,
                  missing,
                  claims.size()));
}

std::string describe(const ShareClaim& claim) {
  return fmt::format(
      "{} samples, {}, drop_last {}",
      claim.dataset_size,
      claim.shuffle != 0 ? fmt::format("shuffled by seed {}", claim.seed) : "in their order",
      claim.drop_last != 0);
}

void check_orders_agree(std::span<const ShareClaim> claims) {
  for (std::size_t rank = 1; rank < claims.size(); ++rank) {
    const std::string first = describe(claims.front());
    const std::string other = describe(claims[rank]);
    if (first != other) {
      throw_mismatch(
          fmt::format("ranks 0 and {} do not share one order: {} on rank 0, {} on rank "
                      "{}",
                      rank,
                      first,
                      other,
                      rank));
    }
  }
}

}  // namespace

void check_claims(std::span<const ShareClaim> claims) {
  check_number_of_replicas(claims);
  check_replicas_differ(claims);
  check_orders_agree(claims);
}

}  // namespace unisono::data
