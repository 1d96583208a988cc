#include "unisono/rendezvous/methods/peer_discovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "unisono/base/bytes.h"
#include "unisono/base/error.h"
#include "unisono/base/field_codec.h"
#include "unisono/base/fnv.h"
#include "unisono/net/hello.h"
#include "unisono/net/proof.h"

namespace unisono::rendezvous {
namespace {

// Long against the tenth of a second between announcements, so that some may be lost.
constexpr std::chrono::seconds kSilence{3};

constexpr std::string_view kMagic = "unisono multicast";

using AnnouncementCodec = FieldCodec<1024>;

auto fields_of(auto& announcement) {
  return std::tie(announcement.group_name,
                  announcement.id,
                  announcement.world_size,
                  announcement.pid,
                  announcement.host,
                  announcement.store_port,
                  announcement.n_known,
                  announcement.known_hash);
}

std::string describe_process(const Announcement& process) {
  return fmt::format("pid {} on {}", process.pid, process.host);
}

}  // namespace

std::vector<std::byte> encode(const Announcement& announcement, const std::string& secret) {
  ByteWriter body;
  body.put_raw(std::as_bytes(std::span(kMagic)));
  body.put(net::kProtocolVersion);
  AnnouncementCodec::write(body, fields_of(announcement));
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
  Announcement announcement;
  const bool is_whole = version == net::kProtocolVersion &&
                        AnnouncementCodec::read(reader, fields_of(announcement)) &&
                        reader.rest().empty();
  return is_whole ? std::optional(announcement) : std::nullopt;
}

void PeerDiscovery::hear(const Announcement& announcement, const Source& source, Time now) {
  if (announcement.group_name != own_.group_name) {
    return;
  }
  if (announcement.id == own_.id) {
    own_addresses_[source.interface] = source.address;
    return;
  }
  if (announcement.world_size != own_.world_size) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the world size is {} here ({}), but {} at {}",
                            own_.world_size,
                            describe_process(own_),
                            announcement.world_size,
                            describe_process(announcement)));
  }
  Peer& peer = peers_[announcement.id];
  peer.addresses[source.interface] = source.address;
  peer.last = announcement;
  peer.heard = now;
}

Announcement PeerDiscovery::announce(Time now) {
  std::erase_if(peers_, [&](const auto& entry) { return now - entry.second.heard > kSilence; });
  return announcement();
}

Announcement PeerDiscovery::announcement() {
  own_.n_known = static_cast<std::uint32_t>(peers_.size()) + 1;
  own_.known_hash = known_hash();
  return own_;
}

std::optional<PeerDiscovery::Agreement> PeerDiscovery::agreement() const {
  const auto world_size = static_cast<std::size_t>(own_.world_size);
  const std::uint64_t hash = known_hash();
  const bool is_complete =
      !own_addresses_.empty() && peers_.size() + 1 == world_size &&
      std::all_of(peers_.begin(), peers_.end(), [&](const auto& entry) {
        return entry.second.last.n_known == world_size && entry.second.last.known_hash == hash;
      });
  if (!is_complete) {
    return std::nullopt;
  }
  const auto rank = std::distance(peers_.begin(), peers_.lower_bound(own_.id));
  if (rank == 0) {
    return Agreement{.rank = 0,
                     .master_address = address_for_most(own_addresses_),
                     .master_port = own_.store_port};
  }
  const Peer& master = peers_.begin()->second;
  return Agreement{
      .rank = static_cast<int>(rank),
      .master_address = address_for_most(is_here(master) ? own_addresses_ : master.addresses),
      .master_port = master.last.store_port};
}

std::string PeerDiscovery::describe() const {
  std::string text = fmt::format("{} of {} processes are here: {}",
                                 peers_.size() + 1,
                                 own_.world_size,
                                 describe_process(own_));
  for (const auto& [id, peer] : peers_) {
    text += ", " + describe_process(peer.last);
  }
  return text;
}

bool PeerDiscovery::is_here(const Peer& peer) const {
  return std::any_of(own_addresses_.begin(), own_addresses_.end(), [&](const auto& own) {
    const auto found = peer.addresses.find(own.first);
    return found != peer.addresses.end() && found->second == own.second;
  });
}

std::string PeerDiscovery::address_for_most(const Addresses& addresses) const {
  const auto n_elsewhere = [&](unsigned interface) {
    return std::count_if(peers_.begin(), peers_.end(), [&](const auto& entry) {
      return entry.second.addresses.contains(interface) && !is_here(entry.second);
    });
  };
  return std::max_element(addresses.begin(),
                          addresses.end(),
                          [&](const auto& a, const auto& b) {
                            return n_elsewhere(a.first) < n_elsewhere(b.first);
                          })
      ->second;
}

std::uint64_t PeerDiscovery::known_hash() const {
  std::set<std::uint64_t> ids{own_.id};
  for (const auto& [id, peer] : peers_) {
    ids.insert(id);
  }
  std::uint64_t hash = kFnvStart;
  for (const std::uint64_t id : ids) {
    hash = fnv_step(hash, id);
  }
  return hash;
}

}  // namespace unisono::rendezvous
