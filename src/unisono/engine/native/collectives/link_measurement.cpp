#include "unisono/engine/native/collectives/link_measurement.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "unisono/base/link_costs.h"
#include "unisono/engine/native/collectives/seconds_of.h"
#include "unisono/engine/native/operation_context.h"
#include "unisono/transport/shm/control_block.h"
#include "unisono/transport/tcp/exchange.h"

namespace unisono::engine {
namespace {

// They travel as bytes.
static_assert(std::is_trivially_copyable_v<LinkCosts>);

constexpr int kMeetings = 32;
constexpr int kCopies = 3;
constexpr int kSmallExchanges = 8;
constexpr int kLargeExchanges = 2;
constexpr std::size_t kCopiedBytes = 64 << 10;
constexpr std::size_t kSentBytes = 256 << 10;

// Of one of `n` in a row, each of which waits for another rank's last one: a single one takes no
// time on a rank that comes late.
template <class Action>
double seconds_each(int n, Action action) {
  const double total = seconds_of([&] {
    for (int repetition = 0; repetition < n; ++repetition) {
      action();
    }
  });
  return total / n;
}

LinkCosts larger_of(const LinkCosts& a, const LinkCosts& b) {
  return {.session = std::max(a.session, b.session),
          .local_byte = std::max(a.local_byte, b.local_byte),
          .latency = std::max(a.latency, b.latency),
          .message = std::max(a.message, b.message),
          .remote_byte = std::max(a.remote_byte, b.remote_byte)};
}

int leader_of(const collective::Topology& topology, int node) {
  return topology.ranks_of(node).front();
}

void put(const OperationContext& context, int place, const LinkCosts& costs) {
  std::memcpy(context.control_block.staging_in(context.self(), place), &costs, sizeof(costs));
}

LinkCosts read(const OperationContext& context, int peer, int place) {
  LinkCosts costs;
  std::memcpy(&costs, context.control_block.staging_in(peer, place), sizeof(costs));
  return costs;
}

LinkCosts agree_between_nodes(OperationContext& context, const LinkCosts& of_node) {
  const std::vector<int> leaders = context.leaders_elsewhere();
  std::vector<LinkCosts> theirs(leaders.size());
  std::vector<tcp::Outgoing> sends;
  std::vector<tcp::Incoming> receives;
  for (std::size_t index = 0; index < leaders.size(); ++index) {
    sends.push_back({.rank = leaders[index], .data = std::as_bytes(std::span(&of_node, 1))});
    receives.push_back(
        {.rank = leaders[index], .data = std::as_writable_bytes(std::span(&theirs[index], 1))});
  }
  context.exchange.run(sends, receives);
  LinkCosts largest = of_node;
  for (const LinkCosts& costs : theirs) {
    largest = larger_of(largest, costs);
  }
  return largest;
}

void measure_node(OperationContext& context, LinkCosts& costs) {
  const auto meet = [&] { context.sync(); };
  (void)seconds_each(kMeetings, meet);  // Ranks come into step.
  costs.session = seconds_each(kMeetings, meet);
  const int peer = (context.self() + 1) % context.n_local();
  double least = std::numeric_limits<double>::max();
  for (int copy = 0; copy < kCopies; ++copy) {
    std::memset(context.control_block.staging_in(context.self(), 0), copy, kCopiedBytes);
    context.sync();
    least = std::min(least, seconds_of([&] {
                       std::memcpy(context.control_block.staging_out(context.self(), 0),
                                   context.control_block.staging_in(peer, 0),
                                   kCopiedBytes);
                     }));
    context.sync();
  }
  costs.local_byte = least / kCopiedBytes;
}

// The same number of bytes to each of `to` and from each of `from`.
void exchange(OperationContext& context,
              std::span<const int> to,
              std::span<const int> from,
              std::size_t n_bytes) {
  context.scratch.resize(std::max(context.scratch.size(), 2 * n_bytes));
  const std::span<std::byte> memory = context.scratch;
  std::vector<tcp::Outgoing> sends;
  std::vector<tcp::Incoming> receives;
  for (const int rank : to) {
    sends.push_back({.rank = rank, .data = memory.first(n_bytes)});
  }
  for (const int rank : from) {
    receives.push_back({.rank = rank, .data = memory.subspan(n_bytes, n_bytes)});
  }
  context.exchange.run(sends, receives);
}

void measure_network(OperationContext& context, LinkCosts& costs) {
  const int n_nodes = context.topology.n_nodes();
  const int node = context.topology.node();
  const std::array next{leader_of(context.topology, (node + 1) % n_nodes)};
  const std::array previous{leader_of(context.topology, (node + n_nodes - 1) % n_nodes)};
  // The first messages open the connections.
  const std::vector<int> leaders = context.leaders_elsewhere();
  exchange(context, leaders, leaders, 0);
  const double one = seconds_each(kSmallExchanges, [&] { exchange(context, next, previous, 0); });
  const double all = seconds_each(kSmallExchanges, [&] { exchange(context, leaders, leaders, 0); });
  const double large =
      seconds_each(kLargeExchanges, [&] { exchange(context, next, previous, kSentBytes); });
  const int n_further = std::max(2 * (n_nodes - 2), 1);
  costs.latency = one;
  costs.message = std::max(all - one, 0.0) / n_further;
  costs.remote_byte = std::max(large - one, 0.0) / kSentBytes;
}

}  // namespace

LinkCosts measure_links(OperationContext& context) {
  LinkCosts mine;
  context.sync();
  if (context.n_local() > 1) {
    measure_node(context, mine);
  }
  if (context.topology.n_nodes() > 1 && context.self() == 0) {
    measure_network(context, mine);
  }
  return mine;
}

// First the ranks of each node, then the nodes, then the ranks again.
std::optional<LinkCosts> agree_on_links(OperationContext& context,
                                        const std::optional<LinkCosts>& mine) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  LinkCosts agreed = mine.value_or(LinkCosts{.session = kNone,
                                             .local_byte = kNone,
                                             .latency = kNone,
                                             .message = kNone,
                                             .remote_byte = kNone});
  context.sync();
  put(context, 0, agreed);
  context.sync();
  for (int peer = 0; peer < context.n_local(); ++peer) {
    agreed = larger_of(agreed, read(context, peer, 0));
  }
  if (context.topology.n_nodes() > 1) {
    if (context.self() == 0) {
      put(context, 1, agree_between_nodes(context, agreed));
    }
    context.sync();
    agreed = read(context, 0, 1);
  }
  context.sync();
  return agreed.session == kNone ? std::nullopt : std::optional(agreed);
}

}  // namespace unisono::engine
