#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"

namespace unisono::rendezvous {

/// What a process that looks for its peers says to all of a multicast group, again and again.
struct Announcement {
  std::string group_name;  ///< Jobs of different names may share a multicast group.
  std::uint64_t id = 0;    ///< Random.
  std::int32_t world_size = 0;
  std::int64_t pid = 0;
  std::string host;              ///< Its name, for messages.
  std::uint16_t store_port = 0;  ///< Where it would serve the store.
  std::uint32_t n_known = 0;     ///< How many processes it knows, itself included.
  std::uint64_t known_hash = 0;  ///< Which.

  friend bool operator==(const Announcement&, const Announcement&) = default;
};

/// With a proof that the sender knows the job's secret.
[[nodiscard]] std::vector<std::byte> encode(const Announcement& announcement,
                                            const std::string& secret);

/// Nothing for other bytes, and where the secret is another.
[[nodiscard]] std::optional<Announcement> decode_announcement(std::span<const std::byte> bytes,
                                                              const std::string& secret);

/// How a process finds its peers by what they announce, and agrees with them on who is which rank:
/// ranks go by the ids. No I/O and no clock of its own.
///
/// It is complete when all those that it has heard of lately are as many as the world size, and
/// each of them has said that it knows the same ones: nobody then counts who does not count itself.
class PeerDiscovery {
 public:
  using Time = Deadline::Clock::time_point;

  /// Where a packet came from.
  struct Source {
    std::string address;
    unsigned interface;  ///< Of this machine, through which it came.
  };

  explicit PeerDiscovery(Announcement own) : own_(std::move(own)) {}

  /// Takes what a process said, this one included. Those of other groups do not count.
  ///
  /// Throws Error(kInvalidArgument) when the world sizes differ.
  void hear(const Announcement& announcement, const Source& source, Time now);

  /// What this process has to announce. Who has not been heard of for some seconds has gone.
  [[nodiscard]] Announcement announce(Time now);

  /// The same of those that it knows, however long ago it heard of them.
  [[nodiscard]] Announcement announcement();

  struct Agreement {
    int rank;
    std::string master_address;  ///< Rank 0's, on the network that reaches most nodes.
    std::uint16_t master_port;

    friend bool operator==(const Agreement&, const Agreement&) = default;
  };

  /// This process's place, once all have found each other.
  [[nodiscard]] std::optional<Agreement> agreement() const;

  /// "2 of 4 processes are here: pid 12 on a, pid 14 on b".
  [[nodiscard]] std::string describe() const;

 private:
  // A process's, by the interface of this machine through which its packets came.
  using Addresses = std::map<unsigned, std::string>;

  struct Peer {
    Announcement last;
    Addresses addresses;
    Time heard;
  };

  [[nodiscard]] bool is_here(const Peer& peer) const;
  // Through an interface that leads nowhere only the processes of this machine are heard.
  [[nodiscard]] std::string address_for_most(const Addresses& addresses) const;
  [[nodiscard]] std::uint64_t known_hash() const;

  Announcement own_;
  Addresses own_addresses_;
  std::map<std::uint64_t, Peer> peers_;
};

}  // namespace unisono::rendezvous
