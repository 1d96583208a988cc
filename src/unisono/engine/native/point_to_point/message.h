#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "unisono/base/buffer.h"
#include "unisono/base/dtype.h"
#include "unisono/engine/message_call.h"
#include "unisono/transport/describe.h"

namespace unisono::engine {

/// One send or receive of this rank, from its call to its end.
struct Message {
  bool is_send = false;
  int peer = kAnyRank;  ///< The other rank.
  int tag = 0;
  Buffer buffer = {};
  std::string label = {};    ///< What the caller calls its buffer, for messages.
  bool is_attended = false;  ///< A thread does nothing else until it has ended.

  /// Set by the machine: the rank that it came from, and that its part is over.
  int source = kAnyRank;
  bool has_ended = false;

  /// How much of the data has moved, where it moves in segments.
  std::int64_t n_moved_bytes = 0;
  /// Parts of its way that have not ended: more than one where both ranks copy.
  int n_parts = 1;
  bool is_cleared = false;  ///< Its receiver has answered the announcement.
  /// By the sender's count, where it was announced.
  std::uint32_t number = 0;

  [[nodiscard]] std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(buffer.data), static_cast<std::size_t>(buffer.n_bytes())};
  }
};

/// "send (f32[4], to rank 1, tag 3) of weights", or "to rank 1 (rank 3 of the job)".
[[nodiscard]] std::string describe(const Message& message, transport::JobRanks job_ranks = {});

}  // namespace unisono::engine
