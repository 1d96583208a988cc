#pragma once

#include <vector>

#include "unisono/rendezvous/roster/roster_codec.h"

namespace unisono::rendezvous {

// Entries in the order in which processes came. A rank of -1 is to be given out.

/// As many are here as the first one's world size.
[[nodiscard]] bool is_full(const std::vector<Entry>& entries);

/// Gives those without a rank the lowest ones that nobody asks for, in their order.
[[nodiscard]] std::vector<Entry> give_out_ranks(std::vector<Entry> entries);

}  // namespace unisono::rendezvous
