#include "unisono/rendezvous/gathering.h"

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

void Gathering::hear(const Announcement& announcement, const std::string& address, Time now) {
  if (announcement.group_name != own_.group_name) {
    return;
  }
  if (announcement.id == own_.id) {
    // On several ways the first one counts, for good; of the others, too.
    own_address_ = own_address_.empty() ? address : own_address_;
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
  const auto [place, is_new] = peers_.try_emplace(announcement.id);
  Peer& peer = place->second;
  if (is_new) {
    peer.address = address;
  }
  peer.last = announcement;
  peer.heard = now;
}

Announcement Gathering::announce(Time now) {
  std::erase_if(peers_, [&](const auto& entry) { return now - entry.second.heard > kSilence; });
  return announcement();
}

Announcement Gathering::announcement() {
  own_.n_known = static_cast<std::uint32_t>(peers_.size()) + 1;
  own_.known_hash = known_hash();
  return own_;
}

std::optional<Gathering::Place> Gathering::place() const {
  const auto world_size = static_cast<std::size_t>(own_.world_size);
  const std::uint64_t hash = known_hash();
  const bool is_complete =
      !own_address_.empty() && peers_.size() + 1 == world_size &&
      std::all_of(peers_.begin(), peers_.end(), [&](const auto& entry) {
        return entry.second.last.n_known == world_size && entry.second.last.known_hash == hash;
      });
  if (!is_complete) {
    return std::nullopt;
  }
  const auto rank = std::distance(peers_.begin(), peers_.lower_bound(own_.id));
  if (rank == 0) {
    return Place{.rank = 0, .master_address = own_address_, .master_port = own_.store_port};
  }
  const Peer& master = peers_.begin()->second;
  return Place{.rank = static_cast<int>(rank),
               .master_address = master.address,
               .master_port = master.last.store_port};
}

std::string Gathering::describe() const {
  std::string text = fmt::format("{} of {} processes are here: {}",
                                 peers_.size() + 1,
                                 own_.world_size,
                                 describe_process(own_));
  for (const auto& [id, peer] : peers_) {
    text += ", " + describe_process(peer.last);
  }
  return text;
}

std::uint64_t Gathering::known_hash() const {
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
