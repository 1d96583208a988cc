#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/rendezvous/roster/roster.h"

namespace unisono::rendezvous {

/// A member with what only the rendezvous needs to know of it.
struct Entry {
  std::uint16_t version = 0;  ///< net::kProtocolVersion of that rank.
  std::string release;        ///< Of the library, "1.2.3".
  std::uint64_t nonce = 0;    ///< Random: tells processes apart that claim the same rank.
  Member member;              ///< Of another version: only rank, world_size, pid and host.
};

/// "0.1.0 (protocol 1)".
[[nodiscard]] std::string describe_version(const Entry& entry);

/// One entry, with its length before it, so that entries can be appended to each other.
[[nodiscard]] std::string encode_entry(const Entry& entry);

/// Nothing when the text is not made of whole entries.
[[nodiscard]] std::optional<std::vector<Entry>> decode_entries(std::string_view text);

}  // namespace unisono::rendezvous
