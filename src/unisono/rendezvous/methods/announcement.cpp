#include "unisono/rendezvous/methods/announcement.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/bytes.h"
#include "unisono/net/hello.h"
#include "unisono/net/proof.h"

namespace unisono::rendezvous {
namespace {

constexpr std::string_view kMagic = "unisono multicast";
constexpr std::size_t kMaxTextBytes = 1024;

}  // namespace

std::vector<std::byte> encode(const Announcement& announcement, const std::string& secret) {
  ByteWriter body;
  body.put_raw(std::as_bytes(std::span(kMagic)));
  body.put(net::kProtocolVersion);
  body.put_string(announcement.group_name);
  body.put(announcement.id);
  body.put(announcement.world_size);
  body.put(announcement.pid);
  body.put_string(announcement.host);
  body.put(announcement.store_port);
  body.put(announcement.n_known);
  body.put(announcement.known_hash);
  const net::Proof proof = net::hmac_sha256(secret, body.bytes());
  body.put_raw(proof);
  return body.bytes();
}

std::optional<Announcement> decode_announcement(std::span<const std::byte> bytes,
                                                const std::string& secret) {
  if (bytes.size() < kMagic.size() + net::kProofBytes) {
    return std::nullopt;
  }
  const std::span<const std::byte> body = bytes.first(bytes.size() - net::kProofBytes);
  const std::span<const std::byte> magic = std::as_bytes(std::span(kMagic));
  if (!std::equal(magic.begin(), magic.end(), body.begin()) ||
      !net::is_equal_secret(net::hmac_sha256(secret, body), bytes.last(net::kProofBytes))) {
    return std::nullopt;
  }
  ByteReader reader(body.subspan(kMagic.size()));
  const auto version = reader.get<std::uint16_t>();
  auto group_name = reader.get_string(kMaxTextBytes);
  const auto id = reader.get<std::uint64_t>();
  const auto world_size = reader.get<std::int32_t>();
  const auto pid = reader.get<std::int64_t>();
  auto host = reader.get_string(kMaxTextBytes);
  const auto store_port = reader.get<std::uint16_t>();
  const auto n_known = reader.get<std::uint32_t>();
  const auto known_hash = reader.get<std::uint64_t>();
  if (version != net::kProtocolVersion || !group_name || !id || !world_size || !pid || !host ||
      !store_port || !n_known || !known_hash || !reader.rest().empty()) {
    return std::nullopt;
  }
  return Announcement{.group_name = std::move(*group_name),
                      .id = *id,
                      .world_size = *world_size,
                      .pid = *pid,
                      .host = std::move(*host),
                      .store_port = *store_port,
                      .n_known = *n_known,
                      .known_hash = *known_hash};
}

}  // namespace unisono::rendezvous
