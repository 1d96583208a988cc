#include "unisono/rendezvous/roster/roster_codec.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/bytes.h"
#include "unisono/base/utf8.h"
#include "unisono/net/hello.h"
#include "unisono/rendezvous/roster/roster.h"

namespace unisono::rendezvous {
namespace {

constexpr std::size_t kMaxEntryBytes = 4096;
constexpr std::size_t kMaxObstacleBytes = 512;

// Reads fields one after the other; once one is missing, all that follow are.
class Fields {
 public:
  explicit Fields(std::string_view text) : reader_(std::as_bytes(std::span(text))) {}

  template <class T>
  T number() {
    const std::optional<T> value = is_good_ ? reader_.get<T>() : std::nullopt;
    is_good_ = value.has_value();
    return value.value_or(T{});
  }

  std::string text() {
    std::optional<std::string> value = is_good_ ? reader_.get_string(kMaxEntryBytes) : std::nullopt;
    is_good_ = value.has_value();
    return std::move(value).value_or("");
  }

  [[nodiscard]] bool is_good() const { return is_good_; }

  [[nodiscard]] bool is_at_end() const { return reader_.rest().empty(); }

 private:
  ByteReader reader_;
  bool is_good_ = true;
};

std::optional<Entry> decode_entry(std::string_view text) {
  Fields fields(text);
  Entry entry;
  entry.version = fields.number<std::uint16_t>();
  entry.nonce = fields.number<std::uint64_t>();
  entry.member.rank = fields.number<std::int32_t>();
  entry.member.world_size = fields.number<std::int32_t>();
  entry.member.pid = fields.number<std::int64_t>();
  entry.member.host = fields.text();
  entry.release = fields.text();
  // The fields so far are the same in every version, so that messages can name the rank.
  if (entry.version == net::kProtocolVersion) {
    entry.member.node = fields.text();
    entry.member.address = fields.text();
    entry.member.port = fields.number<std::uint16_t>();
    entry.member.endpoint = fields.text();
    entry.member.backend.obstacle = fields.text();
    const auto falls_back = fields.number<std::uint8_t>();
    entry.member.backend.falls_back = falls_back == 1;
    if (entry.member.backend.obstacle.size() > kMaxObstacleBytes || falls_back > 1 ||
        !fields.is_at_end()) {
      return std::nullopt;
    }
  }
  return fields.is_good() ? std::optional(entry) : std::nullopt;
}

}  // namespace

std::string describe(const Member& member) {
  return fmt::format("rank {} (pid {} on {})", member.rank, member.pid, member.host);
}

std::string describe_version(const Entry& entry) {
  return fmt::format("{} (protocol {})", entry.release, entry.version);
}

std::string encode_entry(const Entry& entry) {
  const Member& member = entry.member;
  ByteWriter body;
  body.put(entry.version);
  body.put(entry.nonce);
  body.put<std::int32_t>(member.rank);
  body.put<std::int32_t>(member.world_size);
  body.put<std::int64_t>(member.pid);
  body.put_string(member.host);
  body.put_string(entry.release);
  body.put_string(member.node);
  body.put_string(member.address);
  body.put(member.port);
  body.put_string(member.endpoint);
  body.put_string(utf8_prefix(entry.member.backend.obstacle, kMaxObstacleBytes));
  body.put<std::uint8_t>(entry.member.backend.falls_back ? 1 : 0);
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
