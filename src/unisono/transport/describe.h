#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/transport/descriptor.h"

namespace unisono::transport {

/// Job ranks by rank in the group. Empty if both numberings are equal.
using JobRanks = std::span<const int>;

/// Returns a group's rank in the caller's numbering: "1", or "1 (rank 3 of the job)".
[[nodiscard]] std::string describe_rank(int rank, JobRanks job_ranks);

/// Describes an operation in a phrase, e.g. "all_reduce #42 (f32[1048576], sum)". If `counts`, the
/// sizes of the blocks, are given: "all_gather #2 (f32[12] in blocks of 3, 4, 5)".
[[nodiscard]] std::string describe(const Descriptor& descriptor,
                                   std::uint64_t sequence,
                                   std::span<const std::int64_t> counts = {},
                                   JobRanks job_ranks = {});

/// Describes a rank's activity in a phrase that follows the rank's name: "has finished barrier #3
/// and called no collective operation of this group since", "is in barrier #3". Awaited messages
/// and the activity in other groups come before that phrase, a refused call after.
[[nodiscard]] std::string describe(const RankProgress& rank_progress, JobRanks job_ranks = {});

/// A rank's call, as known to another rank.
struct KnownCall {
  std::string who;  ///< "rank 1 (pid 5 on a)", "this rank".
  std::uint64_t sequence = 0;
  Descriptor descriptor = {};
  /// Elements of each block, or of each buffer of a coalesced operation. Empty if unknown.
  std::vector<std::int64_t> counts = {};
};

/// Returns an Error(kMismatch) that names both calls. The message contains the block sizes if the
/// sizes differ, or may differ as far as the available data shows.
[[nodiscard]] Error mismatch(const KnownCall& one, const KnownCall& other, JobRanks job_ranks = {});

/// Returns true if the block sizes of two calls may differ. The descriptors hold only a fingerprint
/// of the sizes, which also covers the reduction's parameter, so that parameter may be the cause
/// instead.
[[nodiscard]] bool may_differ_in_blocks(const Descriptor& one, const Descriptor& other);

/// Returns the number of elements of each block.
[[nodiscard]] std::vector<std::int64_t> counts_of(std::span<const Buffer> blocks);

}  // namespace unisono::transport
