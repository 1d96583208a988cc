#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/transport/descriptor.h"

namespace unisono::transport {

/// By rank in a group, what each is called in the job; empty where those are the same.
using JobRanks = std::span<const int>;

/// A group's rank as its caller numbers it: "1", or "1 (rank 3 of the job)".
[[nodiscard]] std::string describe_rank(int rank, JobRanks job_ranks);

/// An operation in one phrase, e.g. "all_reduce #42 (f32[1048576], sum)". With the `counts` of its
/// blocks, where they are known: "all_gather #2 (f32[12] in blocks of 3, 4, 5)".
[[nodiscard]] std::string describe(const Descriptor& descriptor,
                                   std::uint64_t sequence,
                                   std::span<const std::int64_t> counts = {},
                                   JobRanks job_ranks = {});

/// What a rank does, in a phrase that follows its name: "has finished barrier #3 and called no
/// collective operation of this group since", "is in barrier #3". Messages that it waits for, and
/// what it does in other groups, stand before that; a call that it refused since, after it.
[[nodiscard]] std::string describe(const RankProgress& rank_progress, JobRanks job_ranks = {});

/// What a rank called, as far as another knows.
struct KnownCall {
  std::string who;  ///< "rank 1 (pid 5 on a)", "this rank".
  std::uint64_t sequence = 0;
  Descriptor descriptor = {};
  /// Elements of each block, or of each buffer of a coalesced operation; empty where they are not
  /// known.
  std::vector<std::int64_t> counts = {};
};

/// Error(kMismatch) that says what both called, with the sizes of blocks where those differ, or may
/// as far as is known.
[[nodiscard]] Error mismatch(const KnownCall& one, const KnownCall& other, JobRanks job_ranks = {});

/// Whether the sizes of blocks may differ: what the descriptors have of them does, which may also
/// come from the parameters of reductions.
[[nodiscard]] bool may_differ_in_blocks(const Descriptor& one, const Descriptor& other);

[[nodiscard]] std::vector<std::int64_t> counts_of(std::span<const Buffer> blocks);

}  // namespace unisono::transport
