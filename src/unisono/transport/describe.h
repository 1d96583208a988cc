#pragma once

#include <cstdint>
#include <span>
#include <string>

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

}  // namespace unisono::transport
