#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace unisono::rendezvous {

/// What rank 0 leaves for the others in the launcher's key space.
struct MasterRecord {
  std::string secret = {};   ///< Hexadecimal. Empty where the user has given rank 0 one.
  std::string address = {};  ///< Empty where rank 0 has been told the place, too.
  std::uint16_t port = 0;

  friend bool operator==(const MasterRecord&, const MasterRecord&) = default;
};

/// A word as all key spaces take it: "unisono1/SECRET/ADDRESS/PORT".
[[nodiscard]] std::string encode_record(const MasterRecord& note);

/// Nothing if it is no such word.
[[nodiscard]] std::optional<MasterRecord> decode_record(std::string_view text);

}  // namespace unisono::rendezvous
