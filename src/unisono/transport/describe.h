#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "unisono/transport/descriptor.h"

namespace unisono::transport {

/// An operation in one phrase, e.g. "all_reduce #42 (f32[1048576], sum)". With the `counts` of its
/// blocks, where they are known: "all_gather #2 (f32[12] in blocks of 3, 4, 5)".
[[nodiscard]] std::string describe(const Descriptor& descriptor,
                                   std::uint64_t sequence,
                                   std::span<const std::int64_t> counts = {});

/// What a rank does, in a phrase that follows its name: "has finished barrier #3 and called no
/// collective operation of this group since", "is in barrier #3". Messages that it waits for stand
/// before that; a call that it refused since, after it.
[[nodiscard]] std::string describe(const Standing& standing);

}  // namespace unisono::transport
