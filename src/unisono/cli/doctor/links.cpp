#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <system_error>

#include "unisono/base/buffer.h"
#include "unisono/cli/doctor/report.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"

namespace unisono::cli::doctor {
namespace {

using SteadyClock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr double kSecondsForEach = 0.12;

const transport::Member& member_of(const transport::RankTable& roster, int rank) {
  return roster.members.at(static_cast<std::size_t>(rank));
}

double seconds_since(SteadyClock::time_point start) {
  return Seconds(SteadyClock::now() - start).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <class T>
void send_value(ProcessGroup& group, int peer, T value) {
  group.send(as_buffer(std::span(&value, 1)), peer);
}

template <class T>
T receive_value(ProcessGroup& group, int peer) {
  T value{};
  (void)group.recv(as_buffer(std::span(&value, 1)), peer);
  return value;
}

// A ping is 1; 0 follows the last ping. The reply to 1 is the time on the peer's clock.
void ping(ProcessGroup& group, int peer, const ClockReading& clock, MeasuredLink& link) {
  constexpr int kWarmUp = 10;
  constexpr std::size_t kMost = 1000;
  std::vector<double> trips;
  double fastest = 0;
  auto start = SteadyClock::now();
  for (int i = 0; trips.size() < kMost; ++i) {
    if (i == kWarmUp) {
      trips.clear();
      start = SteadyClock::now();
    }
    if (i > 2 * kWarmUp && seconds_since(start) > kSecondsForEach) {
      break;
    }
    const std::chrono::nanoseconds sent_at = clock();
    const auto begin = SteadyClock::now();
    send_value<std::int64_t>(group, peer, 1);
    const std::chrono::nanoseconds peer_time(receive_value<std::int64_t>(group, peer));
    const double trip = seconds_since(begin);
    if (trips.empty() || trip < fastest) {
      fastest = trip;
      link.clock_difference = Seconds(peer_time - sent_at).count() - trip / 2;
      link.clock_uncertainty = trip / 2;
    }
    trips.push_back(trip);
  }
  send_value<std::int64_t>(group, peer, 0);
  link.latency = median(trips) / 2;
}

void answer_pings(ProcessGroup& group, int peer, const ClockReading& clock) {
  while (receive_value<std::int64_t>(group, peer) != 0) {
    send_value<std::int64_t>(group, peer, clock().count());
  }
}

// The size of each message is sent before the message; size 0 ends the stream. The receiver
// acknowledges each message. Returns the bandwidth in bytes per second.
double send_stream(ProcessGroup& group, int peer, double latency) {
  constexpr std::size_t kLeastBytes = std::size_t{1} << 20;
  constexpr std::size_t kMostBytes = std::size_t{16} << 20;
  constexpr double kLongEnough = 0.02;
  constexpr std::size_t kLeastSamples = 3;
  std::vector<std::uint8_t> bytes(kMostBytes);
  std::size_t size = kLeastBytes;
  std::vector<double> samples;
  auto start = SteadyClock::now();
  while (samples.size() < kLeastSamples || seconds_since(start) < kSecondsForEach) {
    const auto begin = SteadyClock::now();
    send_value<std::int64_t>(group, peer, static_cast<std::int64_t>(size));
    group.send(as_buffer(std::span(bytes).first(size)), peer);
    (void)receive_value<std::int64_t>(group, peer);
    const double time = seconds_since(begin);
    // The way back of the acknowledgement does not belong to the transfer.
    samples.push_back(static_cast<double>(size) / std::max(time / 2, time - latency));
    if (time < kLongEnough && size < kMostBytes) {
      size *= 2;
      samples.clear();
      start = SteadyClock::now();
    }
  }
  send_value<std::int64_t>(group, peer, 0);
  return median(samples);
}

void receive_stream(ProcessGroup& group, int peer) {
  std::vector<std::uint8_t> bytes;
  while (const auto size = receive_value<std::int64_t>(group, peer)) {
    bytes.resize(std::max(bytes.size(), static_cast<std::size_t>(size)));
    (void)group.recv(as_buffer(std::span(bytes).first(static_cast<std::size_t>(size))), peer);
    send_value<std::int64_t>(group, peer, size);
  }
}

double slower_way(const MeasuredLink& link) {
  return std::min(link.bandwidth, link.bandwidth_back);
}

}  // namespace

BlockedLinks find_blocked_links(const transport::RankTable& roster,
                                const std::vector<Node>& nodes,
                                Deadline deadline) {
  struct Attempt {
    int to;
    net::Address address;
    net::Connecting connecting;
  };

  std::vector<Attempt> attempts;
  for (const Node& node : nodes) {
    const transport::Member& member = member_of(roster, node.ranks.at(0));
    if (member.node != roster.self().node) {
      attempts.push_back({member.job_rank, member.address, net::begin_connect(member.address)});
    }
  }
  BlockedLinks blocked;
  for (const auto& [to, address, connecting] : attempts) {
    int error_number = connecting.error_number;
    if (error_number == 0) {
      const bool has_ended = net::wait_for(connecting.fd.get(), POLLOUT, deadline);
      error_number = has_ended ? net::end_connect(connecting.fd.get(), address) : ETIMEDOUT;
    }
    if (error_number != 0) {
      blocked.push_back({roster.rank, to, std::generic_category().message(error_number)});
    }
  }
  return blocked;
}

bool is_open(const BlockedLinks& blocked, int a, int b) {
  return std::none_of(blocked.begin(), blocked.end(), [&](const BlockedLink& link) {
    return std::minmax(link.from, link.to) == std::minmax(a, b);
  });
}

std::vector<Row> report_blocked_links(const BlockedLinks& blocked,
                                      const transport::RankTable& roster) {
  std::vector<Row> rows;
  for (const BlockedLink& link : blocked) {
    const transport::Member& to = member_of(roster, link.to);
    add_row(rows,
            {kProblem,
             fmt::format("can't connect to {} at {}, port {}: {}",
                         transport::describe(to),
                         to.address.ip(),
                         to.address.port(),
                         link.reason),
             "let routes and firewalls pass tcp between all nodes: any port, or those of "
             "UNISONO_PORTS; UNISONO_INTERFACE chooses the network",
             "link"},
            {link.from});
  }
  return rows;
}

std::chrono::nanoseconds read_wall_clock() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::system_clock::now().time_since_epoch());
}

MeasuredLink measure_link(ProcessGroup& group, int peer, const ClockReading& clock) {
  MeasuredLink link{.from = group.rank(), .to = peer};
  if (group.rank() < peer) {
    ping(group, peer, clock, link);
    send_value(group, peer, link.latency);
    link.bandwidth = send_stream(group, peer, link.latency);
    receive_stream(group, peer);
    link.bandwidth_back = receive_value<double>(group, peer);
  } else {
    answer_pings(group, peer, clock);
    link.latency = receive_value<double>(group, peer);
    receive_stream(group, peer);
    send_value(group, peer, send_stream(group, peer, link.latency));
  }
  return link;
}

std::vector<std::vector<std::pair<int, int>>> pair_rounds(int n) {
  // The circle method: the last seat stays, the other seats turn around it. With an odd number the
  // last seat is empty.
  const int n_seats = n + n % 2;
  std::vector<std::vector<std::pair<int, int>>> rounds;
  for (int turn = 0; turn + 1 < n_seats; ++turn) {
    std::vector<std::pair<int, int>>& round = rounds.emplace_back();
    for (int seat = 0; seat < n_seats / 2; ++seat) {
      const int moving = n_seats - 1;
      const int one = seat == 0 ? n_seats - 1 : (turn + seat) % moving;
      const int other = (turn + moving - seat) % moving;
      if (std::max(one, other) < n) {
        round.emplace_back(std::min(one, other), std::max(one, other));
      }
    }
  }
  return rounds;
}

Findings rate_links(const std::vector<Node>& nodes, const std::vector<MeasuredLink>& links) {
  constexpr double kMostClockDifference = 1;
  constexpr std::size_t kFewestLinks = 3;
  constexpr double kGigabyte = 1e9;
  Findings findings;
  std::vector<double> bandwidths;
  for (const MeasuredLink& link : links) {
    const Node& from = node_of(nodes, link.from);
    const Node& to = node_of(nodes, link.to);
    if (&from == &to) {
      continue;
    }
    bandwidths.push_back(slower_way(link));
    // Clocks are compared only with the clock of the first node, so that a wrong clock is a single
    // finding.
    const double difference = std::abs(link.clock_difference);
    if (&from == &nodes.front() && difference - link.clock_uncertainty > kMostClockDifference) {
      findings.push_back({kWarning,
                          fmt::format("{}'s clock is {:.3f} s {} {}'s",
                                      to.name,
                                      difference,
                                      link.clock_difference > 0 ? "ahead of" : "behind",
                                      from.name),
                          "synchronize them by NTP (chrony): logs of two nodes can't be compared",
                          "clock"});
    }
  }
  const double usual = bandwidths.size() < kFewestLinks ? 0 : median(bandwidths);
  for (const MeasuredLink& link : links) {
    const Node& from = node_of(nodes, link.from);
    const Node& to = node_of(nodes, link.to);
    if (&from != &to && slower_way(link) < usual / 2) {
      findings.push_back(
          {kWarning,
           fmt::format("{} - {}: {:.3g} GB/s, and {:.3g} GB/s is usual between these nodes",
                       from.name,
                       to.name,
                       slower_way(link) / kGigabyte,
                       usual / kGigabyte),
           "all collectives wait for the slowest link: check the cable, the speed that the "
           "interfaces agreed on, and other traffic",
           "link"});
    }
  }
  return findings;
}

}  // namespace unisono::cli::doctor
