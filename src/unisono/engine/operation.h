#pragma once

#include <cstdint>
#include <string>

#include "unisono/base/buffer.h"
#include "unisono/transport/descriptor.h"

namespace unisono::engine {

/// One call of one rank. Buffers were checked to fit the descriptor.
struct Operation {
  transport::Descriptor descriptor = {};
  std::uint64_t sequence = 0;  ///< Number in the group, from 1, the same on every rank.
  Buffer in = {};              ///< all_reduce: contributions. broadcast: same as `out`.
  Buffer out = {};
  std::string label = {};  ///< What the caller calls its buffer, for messages.
};

}  // namespace unisono::engine
