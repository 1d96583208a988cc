#pragma once

#include <cstdint>
#include <string>

#include "unisono/transport/descriptor.h"

namespace unisono::transport {

/// An operation in one phrase, e.g. "all_reduce #42 (f32[1048576], sum)".
[[nodiscard]] std::string describe(const Descriptor& descriptor, std::uint64_t sequence);

/// What a rank does, in a phrase that follows its name: "has finished barrier #3 and called nothing
/// since", "is in barrier #3". A call that it refused since is named, too.
[[nodiscard]] std::string describe(const Standing& standing);

}  // namespace unisono::transport
