#include "unisono/rendezvous/roster/roster_codec.h"

#include <fmt/format.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "unisono/base/bytes.h"
#include "unisono/base/field_codec.h"
#include "unisono/base/utf8.h"
#include "unisono/net/hello.h"
#include "unisono/rendezvous/roster/roster.h"

namespace unisono::rendezvous {
namespace {

constexpr std::size_t kMaxEntryBytes = 4096;
constexpr std::size_t kMaxObstacleBytes = 512;

using EntryCodec = FieldCodec<kMaxEntryBytes>;

// The same in every version, so that messages can name the rank.
auto common_fields(auto& entry) {
  return std::tie(entry.version,
                  entry.nonce,
                  entry.member.rank,
                  entry.member.world_size,
                  entry.member.pid,
                  entry.member.host,
                  entry.release);
}

auto other_fields(auto& entry) {
  return std::tie(entry.member.node,
                  entry.member.address,
                  entry.member.port,
                  entry.member.endpoint,
                  entry.member.backend.obstacle,
                  entry.member.backend.falls_back);
}

std::optional<Entry> decode_entry(std::string_view text) {
  ByteReader reader(std::as_bytes(std::span(text)));
  Entry entry;
  bool is_whole = EntryCodec::read(reader, common_fields(entry));
  if (is_whole && entry.version == net::kProtocolVersion) {
    is_whole = EntryCodec::read(reader, other_fields(entry)) && reader.rest().empty() &&
               entry.member.backend.obstacle.size() <= kMaxObstacleBytes;
  }
  return is_whole ? std::optional(entry) : std::nullopt;
}

}  // namespace

std::string describe(const Member& member) {
  return fmt::format("rank {} (pid {} on {})", member.rank, member.pid, member.host);
}

std::string describe_version(const Entry& entry) {
  return fmt::format("{} (protocol {})", entry.release, entry.version);
}

std::string encode_entry(const Entry& entry) {
  Entry copy = entry;
  copy.member.backend.obstacle = utf8_prefix(entry.member.backend.obstacle, kMaxObstacleBytes);
  ByteWriter body;
  EntryCodec::write(body, common_fields(copy));
  EntryCodec::write(body, other_fields(copy));
  ByteWriter record;
  record.put_string({reinterpret_cast<const char*>(body.bytes().data()), body.bytes().size()});
  return {reinterpret_cast<const char*>(record.bytes().data()), record.bytes().size()};
}

std::optional<std::vector<Entry>> decode_entries(std::string_view text) {
  std::vector<Entry> entries;
  ByteReader reader(std::as_bytes(std::span(text)));
  while (!reader.rest().empty()) {
    const std::optional<std::string_view> record = reader.get_string_view(kMaxEntryBytes);
    std::optional<Entry> entry = record ? decode_entry(*record) : std::nullopt;
    if (!entry) {
      return std::nullopt;
    }
    entries.push_back(std::move(*entry));
  }
  return entries;
}

}  // namespace unisono::rendezvous
