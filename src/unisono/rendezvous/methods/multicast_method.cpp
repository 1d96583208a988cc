#include <fmt/format.h>
#include <sys/poll.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/interruptible_pause.h"
#include "unisono/base/interruption.h"
#include "unisono/base/log.h"
#include "unisono/base/thread.h"
#include "unisono/net/address.h"
#include "unisono/net/interfaces.h"
#include "unisono/net/io.h"
#include "unisono/net/loopback.h"
#include "unisono/net/multicast.h"
#include "unisono/net/port_reservation.h"
#include "unisono/rendezvous/interface_choice.h"
#include "unisono/rendezvous/methods/builtin_methods.h"
#include "unisono/rendezvous/methods/discovery.h"
#include "unisono/rendezvous/methods/peer_discovery.h"
#include "unisono/rendezvous/roster/node_id.h"
#include "unisono/rendezvous/secret.h"

namespace unisono::rendezvous {
namespace {

constexpr std::chrono::milliseconds kInterval{100};

// An interface that was switched on just now may need so long until something can be sent there.
constexpr std::chrono::seconds kInterfaceDelay{4};

// How long others are told what contradicts them.
constexpr std::chrono::seconds kMoment{1};

RankRequest rank_request(const DiscoveryRequest& request) {
  RankRequest wanted = read_rank_request(request.method, request.given);
  if (wanted.rank) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("init_method \"{}\": rank {} is given, but at a multicast group ranks "
                            "are given out",
                            request.method.text,
                            *wanted.rank));
  }
  return wanted;
}

// Says the same again and again, from a thread of its own, until it is destroyed.
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
        continue;  // Those who never hear it say so when their time is up.
      }
    } while (pause_.wait_until(Deadline::after(kInterval)));
  }

  net::MulticastSocket socket_;
  net::PortReservation port_;
  std::vector<std::byte> packet_;
  InterruptiblePause pause_;
  std::thread thread_;
};

// Hears what comes until `deadline`.
void listen(net::MulticastSocket& socket,
            const std::string& secret,
            PeerDiscovery& peers,
            Deadline deadline) {
  while (!peers.agreement() && net::wait_for(socket.fd(), POLLIN, deadline)) {
    while (const std::optional<net::MulticastSocket::Packet> packet = socket.receive()) {
      if (deadline.has_passed()) {
        return;  // Somebody sends more than can be read.
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
  // Who has no secret stays on this machine.
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
  const Logger logger("rendezvous", config.log_level);
  auto patience = config.stall;
  const auto start = Deadline::Clock::now();
  std::optional<PeerDiscovery::Agreement> agreed;
  std::string obstacle;  // Why nothing can be sent.
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
        // Who contradicts this process, and who comes in the same moment, is to hear of it, too.
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
