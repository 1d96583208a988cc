#include "unisono/cli/doctor/find_obstacles.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "unisono/base/bytes.h"
#include "unisono/base/deadline.h"
#include "unisono/net/address.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/rendezvous/roster/roster.h"

namespace unisono::cli::doctor {
namespace {

struct Attempt {
  int to;
  net::Address address;
  net::Connecting connecting;
};

// Why the connection did not come about; 0 if it did.
int finish(const Attempt& attempt, Deadline deadline) {
  if (attempt.connecting.error_number != 0) {
    return attempt.connecting.error_number;
  }
  if (!net::wait_for(attempt.connecting.fd.get(), POLLOUT, deadline)) {
    return ETIMEDOUT;
  }
  return net::end_connect(attempt.connecting.fd.get(), attempt.address);
}

const rendezvous::Member& member_of(const rendezvous::Roster& roster, int rank) {
  return roster.members.at(static_cast<std::size_t>(rank));
}

}  // namespace

Obstacles find_obstacles(const rendezvous::Roster& roster,
                         const std::vector<Node>& nodes,
                         Deadline deadline) {
  std::vector<Attempt> attempts;
  for (const Node& node : nodes) {
    const rendezvous::Member& member = member_of(roster, node.ranks.at(0));
    const auto address = net::Address::parse(member.address, member.port);
    if (member.node != roster.self().node && address) {
      attempts.push_back(
          {.to = member.rank, .address = *address, .connecting = net::begin_connect(*address)});
    }
  }
  Obstacles obstacles;
  for (const Attempt& attempt : attempts) {
    if (const int error_number = finish(attempt, deadline)) {
      obstacles.push_back({.from = roster.rank,
                           .to = attempt.to,
                           .reason = std::generic_category().message(error_number)});
    }
  }
  return obstacles;
}

bool is_open(const Obstacles& obstacles, int a, int b) {
  return std::none_of(obstacles.begin(), obstacles.end(), [&](const Obstacle& obstacle) {
    return (obstacle.from == a && obstacle.to == b) || (obstacle.from == b && obstacle.to == a);
  });
}

std::vector<Row> report_obstacles(const Obstacles& obstacles, const rendezvous::Roster& roster) {
  std::vector<Row> rows;
  for (const Obstacle& obstacle : obstacles) {
    const rendezvous::Member& to = member_of(roster, obstacle.to);
    Finding finding{
        .state = State::kProblem,
        .topic = "link",
        .text = fmt::format("no way to {} at {}, port {}: {}",
                            rendezvous::describe(to),
                            to.address,
                            to.port,
                            obstacle.reason),
        .advice =
            "let routes and firewalls pass tcp between all nodes: any port, or those of "
            "UNISONO_PORTS; UNISONO_INTERFACE chooses the network"};
    const auto same = std::find_if(
        rows.begin(), rows.end(), [&](const Row& row) { return row.finding == finding; });
    if (same == rows.end()) {
      rows.push_back({.finding = std::move(finding), .ranks = {obstacle.from}});
    } else {
      same->ranks.push_back(obstacle.from);
    }
  }
  return rows;
}

std::string encode(const Obstacles& obstacles) {
  ByteWriter writer;
  for (const Obstacle& obstacle : obstacles) {
    writer.put(std::int32_t{obstacle.from});
    writer.put(std::int32_t{obstacle.to});
    writer.put_string(obstacle.reason);
  }
  const std::vector<std::byte>& bytes = writer.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::optional<Obstacles> decode_obstacles(std::string_view bytes) {
  constexpr std::size_t kMaxReason = 4096;
  ByteReader reader(std::as_bytes(std::span(bytes)));
  Obstacles obstacles;
  while (!reader.rest().empty()) {
    const auto from = reader.get<std::int32_t>();
    const auto to = reader.get<std::int32_t>();
    const auto reason = reader.get_string(kMaxReason);
    if (!from || !to || !reason) {
      return std::nullopt;
    }
    obstacles.push_back({.from = *from, .to = *to, .reason = *reason});
  }
  return obstacles;
}

}  // namespace unisono::cli::doctor
