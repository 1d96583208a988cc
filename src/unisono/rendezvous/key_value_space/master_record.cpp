#include "unisono/rendezvous/key_value_space/master_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace unisono::rendezvous {
namespace {

constexpr std::string_view kVersion = "unisono1";

// Up to the next "/", which goes, too; nothing if there is none.
std::optional<std::string_view> take_field(std::string_view& rest) {
  const std::size_t slash = rest.find('/');
  if (slash == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view field = rest.substr(0, slash);
  rest.remove_prefix(slash + 1);
  return field;
}

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
}

}  // namespace

std::string encode_record(const MasterRecord& note) {
  return fmt::format("{}/{}/{}/{}", kVersion, note.secret, note.address, note.port);
}

std::optional<MasterRecord> decode_record(std::string_view text) {
  const auto version = take_field(text);
  const auto secret = take_field(text);
  const auto address = take_field(text);
  if (!secret || !address || version != kVersion || !is_hex(*secret)) {
    return std::nullopt;
  }
  MasterRecord note{.secret = std::string(*secret), .address = std::string(*address)};
  const std::string port(text);
  const char* const end = port.c_str() + port.size();
  const auto [stop, error] = std::from_chars(port.c_str(), end, note.port);
  const bool is_whole = error == std::errc() && stop == end;
  return is_whole && note.address.empty() == (note.port == 0) ? std::optional(note) : std::nullopt;
}

}  // namespace unisono::rendezvous
