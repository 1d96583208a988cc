#include <fmt/format.h>
#include <sys/poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "unisono/base/bytes.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/base/thread.h"
#include "unisono/net/address.h"
#include "unisono/net/hello.h"
#include "unisono/net/host.h"
#include "unisono/net/io.h"
#include "unisono/net/multicast.h"
#include "unisono/net/ports.h"
#include "unisono/rendezvous/methods/builtin_methods.h"
#include "unisono/rendezvous/methods/discovery.h"
#include "unisono/rendezvous/secret.h"
#include "unisono/rendezvous/this_node.h"

namespace unisono::rendezvous {
namespace {

// Long compared to the interval of announcements (0.1 s), so that some may be lost.
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

namespace {

constexpr std::chrono::milliseconds kInterval{100};

// An interface that was just enabled may take this long until packets can be sent.
constexpr std::chrono::seconds kInterfaceDelay{4};

// How long this process announces itself after finding a contradiction.
constexpr std::chrono::seconds kMoment{1};

RankRequest rank_request(const DiscoveryRequest& request) {
  RankRequest wanted = read_rank_request(request.method, request.given);
  if (wanted.rank) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "init_method \"{}\": rank {} is given, but at a multicast group ranks are assigned",
            request.method.text,
            *wanted.rank));
  }
  return wanted;
}

// Repeats an announcement on a separate thread until the object is destroyed.
class MulticastPresence {
 public:
  MulticastPresence(net::MulticastSocket socket,
                    net::PortReservation port,
                    std::vector<std::byte> packet)
      : socket_(std::move(socket)), port_(std::move(port)), packet_(std::move(packet)) {
    thread_ = start_thread("unisono-meet", "can't announce this process", [this] { announce(); });
  }

  ~MulticastPresence() {
    pause_.end();
    thread_.join();
  }

  MulticastPresence(const MulticastPresence&) = delete;
  MulticastPresence& operator=(const MulticastPresence&) = delete;
  MulticastPresence(MulticastPresence&&) = delete;
  MulticastPresence& operator=(MulticastPresence&&) = delete;

 private:
  void announce() {
    do {
      try {
        socket_.send(packet_);
      } catch (const std::exception&) {
        continue;  // A process that never receives the packet reports a timeout.
      }
    } while (pause_.wait_until(Deadline::after(kInterval)));
  }

  net::MulticastSocket socket_;
  net::PortReservation port_;
  std::vector<std::byte> packet_;
  InterruptiblePause pause_;
  std::thread thread_;
};

// Receives announcements until `deadline` or until all processes agree.
void listen(net::MulticastSocket& socket,
            const std::string& secret,
            PeerDiscovery& peers,
            Deadline deadline) {
  while (!peers.agreement() && net::wait_for(socket.fd(), POLLIN, deadline)) {
    while (const std::optional<net::MulticastSocket::Packet> packet = socket.receive()) {
      if (deadline.has_passed()) {
        return;  // Packets arrive faster than this process reads.
      }
      if (const std::optional<Announcement> said = decode_announcement(packet->bytes, secret)) {
        peers.hear(*said,
                   {.address = packet->from.ip(), .interface = packet->interface},
                   Deadline::Clock::now());
      }
    }
  }
}

}  // namespace

bool is_multicast(const InitMethod& method) {
  const std::optional<net::Address> address = net::Address::parse(method.host, 1);
  return method.scheme == "tcp" && address && address->is_multicast();
}

Discovered discover_by_multicast(const DiscoveryRequest& request) {
  const auto& [method, given, config, environment, deadline] = request;
  const RankRequest wanted = rank_request(request);
  // A process without a secret stays on this machine.
  const std::string secret = find_secret(config, net::loopback_host());
  const auto group = net::Address::parse(method.host, method.port.value_or(kDefaultMasterPort));
  UNISONO_CHECK(group.has_value(), "is_multicast() has read it");
  net::MulticastSocket socket(
      *group,
      choose_group_interfaces(
          config.interface, net::interfaces(), group->family(), secret.empty()));
  net::PortReservation port = reserve_store_port(config, group->family());
  PeerDiscovery peers({.group_name = wanted.group_name,
                       .id = random_number(),
                       .world_size = wanted.world_size,
                       .pid = ::getpid(),
                       .host = host_name(),
                       .store_port = port.port()});
  const base::Logger logger("rendezvous", config.log_level);
  auto patience = config.stall;
  const auto start = Deadline::Clock::now();
  std::optional<PeerDiscovery::Agreement> agreed;
  std::string obstacle;  // The reason if no packet can be sent.
  for (; !agreed; agreed = peers.agreement()) {
    const Deadline::Clock::time_point now = Deadline::Clock::now();
    const std::string message = fmt::format("rendezvous: at {} for {:.1f} s: {}{}",
                                            method.text,
                                            std::chrono::duration<double>(now - start).count(),
                                            peers.describe(),
                                            obstacle);
    if (deadline.has_passed()) {
      throw Error(ErrorCode::kTimeout, message);
    }
    if (now - start > patience) {
      logger.warning(message);
      patience *= 2;
    }
    try {
      socket.send(encode(peers.announce(now), secret));
      obstacle.clear();
    } catch (const Error& error) {
      obstacle = fmt::format("; {}", error.what());
      if (now - start > kInterfaceDelay) {
        throw;
      }
    }
    try {
      listen(socket, secret, peers, earlier(deadline, Deadline::after(kInterval)));
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInvalidArgument) {
        // The contradicting process, and processes that arrive at the same time, must receive this
        // process's announcement too.
        const MulticastPresence presence(
            std::move(socket), std::move(port), encode(peers.announcement(), secret));
        interruptible_sleep_until(earlier(deadline, Deadline::after(kMoment)));
      }
      throw;
    }
    check_interruption();
  }
  std::vector<std::byte> packet = encode(peers.announcement(), secret);
  return {.launch_info = {.master_addr = agreed->master_address,
                          .master_port = agreed->master_port,
                          .rank = agreed->rank,
                          .world_size = wanted.world_size,
                          .has_many_addresses = true},
          .presence = std::make_shared<MulticastPresence>(
              std::move(socket), std::move(port), std::move(packet))};
}

}  // namespace unisono::rendezvous
