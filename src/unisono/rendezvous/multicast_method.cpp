#include "unisono/rendezvous/multicast_method.h"

#include <fmt/format.h>
#include <sys/poll.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/base/mutex.h"
#include "unisono/base/thread.h"
#include "unisono/net/address.h"
#include "unisono/net/io.h"
#include "unisono/net/multicast.h"
#include "unisono/net/port_reservation.h"
#include "unisono/rendezvous/announcement.h"
#include "unisono/rendezvous/gathering.h"
#include "unisono/rendezvous/node_id.h"
#include "unisono/rendezvous/secret.h"

namespace unisono::rendezvous {
namespace {

constexpr std::chrono::milliseconds kInterval{100};

net::Address group_of(const InitMethod& method) {
  const std::optional<net::Address> group =
      net::Address::parse(method.host, method.port.value_or(kDefaultMasterPort));
  if (!group) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("init_method \"{}\" names no address", method.text));
  }
  return *group;
}

int world_size_of(const InitMethod& method, const GivenPlace& given) {
  if (given.rank >= 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("init_method \"{}\": the program gives rank {}, but at a multicast "
                            "group ranks are given out",
                            method.text,
                            given.rank));
  }
  for (const auto& [name, value] : method.query) {
    if (name != "world_size" && name != "group_name") {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("init_method \"{}\": there is no option {} at a multicast group; "
                              "ranks are given out there",
                              method.text,
                              name));
    }
  }
  const std::optional<int> world_size =
      given.world_size >= 0 ? given.world_size : method.number("world_size", 1);
  if (!world_size || *world_size == 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("init_method \"{}\": there is no world_size; give it in InitOptions or "
                            "as {}?world_size=4",
                            method.text,
                            method.text));
  }
  return *world_size;
}

std::uint64_t random_id() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

// Says the same again and again, from a thread of its own, until it is destroyed.
class Presence {
 public:
  Presence(net::MulticastSocket socket, net::PortReservation port, std::vector<std::byte> packet)
      : socket_(std::move(socket)), port_(std::move(port)), packet_(std::move(packet)) {
    thread_ = start_thread("unisono-meet", "can't announce this process", [this] { announce(); });
  }

  ~Presence() {
    {
      const MutexLock lock(mutex_);
      is_over_ = true;
    }
    over_.notify_one();
    thread_.join();
  }

  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;
  Presence(Presence&&) = delete;
  Presence& operator=(Presence&&) = delete;

 private:
  void announce() {
    try {
      do {
        socket_.send(packet_);
      } while (pause());
    } catch (const std::exception&) {
      return;  // Those who did not hear it say so when their time is up.
    }
  }

  [[nodiscard]] bool pause() {
    const Deadline next = Deadline::after(kInterval);
    const MutexLock lock(mutex_);
    while (!is_over_ && over_.wait_until(mutex_, next.time())) {
    }
    return !is_over_;
  }

  net::MulticastSocket socket_;
  net::PortReservation port_;
  std::vector<std::byte> packet_;
  Mutex mutex_;
  Condition over_;
  bool is_over_ UNISONO_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// Hears what comes until `deadline`.
void listen(net::MulticastSocket& socket,
            const std::string& secret,
            Gathering& gathering,
            Deadline deadline) {
  while (!gathering.place() && net::wait_for(socket.fd(), POLLIN, deadline)) {
    while (const std::optional<net::MulticastSocket::Packet> packet = socket.receive()) {
      if (const std::optional<Announcement> said = decode_announcement(packet->bytes, secret)) {
        gathering.hear(*said, packet->from.ip(), Deadline::Clock::now());
      }
    }
  }
}

}  // namespace

bool is_multicast(const InitMethod& method) {
  const std::optional<net::Address> address = net::Address::parse(method.host, 1);
  return method.scheme == "tcp" && address && address->is_multicast();
}

Gathered gather_by_multicast(const InitMethod& method,
                             const Config& config,
                             const GivenPlace& given,
                             Deadline deadline) {
  const int n = world_size_of(method, given);
  // Who has no secret stays on this machine.
  const std::string secret = find_secret(config, "localhost");
  const net::Address group = group_of(method);
  net::MulticastSocket socket(group, secret.empty());
  net::PortReservation port(net::Address::any(group.family(), 0));
  const auto name = method.query.find("group_name");
  Gathering gathering({.group_name = name == method.query.end() ? "" : name->second,
                       .id = random_id(),
                       .world_size = n,
                       .pid = ::getpid(),
                       .host = host_name(),
                       .store_port = port.port()});
  const Logger logger("rendezvous", config.log_level);
  auto patience = config.stall;
  const auto start = Deadline::Clock::now();
  std::optional<Gathering::Place> place;
  for (; !place; place = gathering.place()) {
    const Deadline::Clock::time_point now = Deadline::Clock::now();
    const std::string message = fmt::format("rendezvous: at {} for {:.1f} s: {}",
                                            method.text,
                                            std::chrono::duration<double>(now - start).count(),
                                            gathering.describe());
    if (deadline.has_passed()) {
      throw Error(ErrorCode::kTimeout, message);
    }
    if (now - start > patience) {
      logger.warning(message);
      patience *= 2;
    }
    socket.send(encode(gathering.announce(now), secret));
    listen(socket, secret, gathering, earlier(deadline, Deadline::after(kInterval)));
  }
  std::vector<std::byte> packet = encode(gathering.announcement(), secret);
  return {.assignment = {.master_addr = place->master_address,
                         .master_port = place->master_port,
                         .rank = place->rank,
                         .world_size = n},
          .presence =
              std::make_shared<Presence>(std::move(socket), std::move(port), std::move(packet))};
}

}  // namespace unisono::rendezvous
