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
#include "unisono/rendezvous/methods/discovery.h"

namespace unisono::rendezvous {

/// The rank and world size requested by a method and the program.
struct RankRequest {
  std::optional<int> rank;  ///< std::nullopt: any rank.
  int world_size;
  std::string group_name;
};

/// Reads the options of the method; `given` takes precedence. If `needs_rank`, every process must
/// have a rank, and group_name is not an option. `problems` are problems found before.
///
/// Throws Error(kInvalidArgument) with all missing and invalid values and unknown options.
[[nodiscard]] RankRequest read_rank_request(const InitMethod& method,
                                            const GivenRank& given,
                                            bool needs_rank = false,
                                            std::string problems = "");

/// Finds the other processes through a file that all can lock, file:///PATH. Each process appends
/// an entry with the address of the store that it would serve as rank 0; processes without a rank
/// get an assigned rank. The method has the option world_size, unless given by the program, and may
/// have rank and group_name: jobs with different names can share a file.
///
/// Entries of processes that have ended and entries of complete jobs are ignored: a later process
/// begins the next job. The last process that needs the file deletes it.
///
/// Throws Error(kInvalidArgument) if the method is invalid or the processes contradict each other,
/// Error(kTimeout) with the processes that are present, and the errors of FileStore's constructor.
[[nodiscard]] Discovered discover_by_file(const DiscoveryRequest& request);

/// Returns true if the method is a multicast group: tcp://239.1.2.3:PORT or tcp://[ff15::1]:PORT.
[[nodiscard]] bool is_multicast(const InitMethod& method);

/// Finds the other processes by announcements to a multicast group and agrees on the ranks, which
/// must not be given. The method has the option world_size, unless given by the program, and may
/// have group_name: jobs with different names can share a multicast group. Without a secret, only
/// loopback is used.
///
/// Throws Error(kInvalidArgument) if the method is invalid or the world sizes differ,
/// Error(kSystem) if multicast is impossible, Error(kTimeout) with the processes that are present.
[[nodiscard]] Discovered discover_by_multicast(const DiscoveryRequest& request);

/// Sent repeatedly to a multicast group by a process that searches for peers.
struct Announcement {
  std::string group_name;  ///< Jobs with different names can share a multicast group.
  std::uint64_t id = 0;    ///< Random.
  std::int32_t world_size = 0;
  std::int64_t pid = 0;
  std::string host;              ///< Host name, for messages.
  std::uint16_t store_port = 0;  ///< Port of the store if this process becomes rank 0.
  std::uint32_t n_known = 0;     ///< Number of processes known to the sender, including itself.
  std::uint64_t known_hash = 0;  ///< Hash of the ids of these processes.

  friend bool operator==(const Announcement&, const Announcement&) = default;
};

/// Encodes an announcement, with a proof that the sender has the job's secret.
[[nodiscard]] std::vector<std::byte> encode(const Announcement& announcement,
                                            const std::string& secret);

/// Decodes an announcement. Returns std::nullopt for other bytes and for another secret.
[[nodiscard]] std::optional<Announcement> decode_announcement(std::span<const std::byte> bytes,
                                                              const std::string& secret);

/// Discovery by multicast as a state machine: processes find each other by announcements and agree
/// on the ranks, which follow the order of the ids. Without I/O or a clock.
///
/// Complete once the number of recently heard processes is the world size and each process
/// announces the same set of processes. All processes of the set then agree on the membership.
/// Owned by the caller that does the I/O; not thread-safe. hear() throws if world sizes differ.
class PeerDiscovery {
 public:
  using Time = Deadline::Clock::time_point;

  /// Origin of a packet.
  struct Source {
    std::string address;
    unsigned interface;  ///< Interface of this machine that received the packet.
  };

  explicit PeerDiscovery(Announcement own) : own_(std::move(own)) {}

  /// Processes an announcement, which may be this process's own. Ignores other groups.
  ///
  /// Throws Error(kInvalidArgument) if the world sizes differ.
  void hear(const Announcement& announcement, const Source& source, Time now);

  /// Returns this process's announcement. Removes processes without an announcement for some
  /// seconds.
  [[nodiscard]] Announcement announce(Time now);

  /// Returns this process's announcement without removing silent processes.
  [[nodiscard]] Announcement announcement();

  struct Agreement {
    int rank;
    std::string master_address;  ///< Address of rank 0 in the network that reaches most nodes.
    std::uint16_t master_port;

    friend bool operator==(const Agreement&, const Agreement&) = default;
  };

  /// Returns this process's place once all processes have found each other; std::nullopt before.
  [[nodiscard]] std::optional<Agreement> agreement() const;

  /// Returns "2 of 4 processes are here: pid 12 on a, pid 14 on b".
  [[nodiscard]] std::string describe() const;

 private:
  // Addresses of a process, by the interface of this machine that received the packets.
  using Addresses = std::map<unsigned, std::string>;

  struct Peer {
    Announcement last;
    Addresses addresses;
    Time heard;
  };

  [[nodiscard]] bool is_here(const Peer& peer) const;
  // Prefers the interface that received packets of most processes on other machines: an isolated
  // interface receives only packets of this machine.
  [[nodiscard]] std::string address_for_most(const Addresses& addresses) const;
  [[nodiscard]] std::uint64_t known_hash() const;

  Announcement own_;
  Addresses own_addresses_;
  std::map<std::uint64_t, Peer> peers_;
};

}  // namespace unisono::rendezvous
