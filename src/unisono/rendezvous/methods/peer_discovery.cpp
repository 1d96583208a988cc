#include "unisono/rendezvous/methods/peer_discovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <set>
#include <string>

#include "unisono/base/error.h"
#include "unisono/base/fnv.h"

namespace unisono::rendezvous {
namespace {

// Long against the tenth of a second between announcements, so that some may be lost.
constexpr std::chrono::seconds kSilence{3};

std::string describe_process(const Announcement& process) {
  return fmt::format("pid {} on {}", process.pid, process.host);
}

}  // namespace

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

std::optional<PeerDiscovery::Place> PeerDiscovery::place() const {
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
    return Place{.rank = 0,
                 .master_address = address_for_most(own_addresses_),
                 .master_port = own_.store_port};
  }
  const Peer& master = peers_.begin()->second;
  return Place{
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
