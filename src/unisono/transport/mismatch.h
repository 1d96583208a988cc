#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"

namespace unisono::transport {

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
