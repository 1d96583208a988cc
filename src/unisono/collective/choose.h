#pragma once

#include <cstdint>

#include "unisono/collective/topology.h"

namespace unisono::collective {

/// Whether every rank had better combine everything itself than only its chunk. `slot_bytes` is
/// the most that a rank can contribute that way.
///
/// One-shot costs one meeting of the node's ranks and reads all contributions on each; two-shot
/// costs two meetings, but reads and writes each element once per rank.
[[nodiscard]] bool is_one_shot_cheaper(std::int64_t n_bytes,
                                       const Topology& topology,
                                       std::int64_t slot_bytes);

}  // namespace unisono::collective
