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

// How all ranks come to the same figures: what is larger on any of them counts.
class LinkAgreement {
 public:
  explicit LinkAgreement(OperationContext& context) : context_(context) {}

  // First the ranks of each node, then the nodes, then the ranks again.
  [[nodiscard]] LinkCosts agree(const LinkCosts& mine) {
    context_.sync();
    put(0, mine);
    context_.sync();
    LinkCosts of_node = mine;
    for (int peer = 0; peer < context_.n_local(); ++peer) {
      of_node = larger_of(of_node, at(peer, 0));
    }
    if (context_.topology.n_nodes() > 1) {
      if (context_.self() == 0) {
        put(1, agree_between_nodes(of_node));
      }
      context_.sync();
      of_node = at(0, 1);
    }
    context_.sync();
    return of_node;
  }

 private:
  [[nodiscard]] LinkCosts agree_between_nodes(const LinkCosts& of_node) {
    const std::vector<int> leaders = context_.leaders_elsewhere();
    std::vector<LinkCosts> theirs(leaders.size());
    std::vector<tcp::Outgoing> sends;
    std::vector<tcp::Incoming> receives;
    for (std::size_t index = 0; index < leaders.size(); ++index) {
      sends.push_back({.rank = leaders[index], .data = std::as_bytes(std::span(&of_node, 1))});
      receives.push_back(
          {.rank = leaders[index], .data = std::as_writable_bytes(std::span(&theirs[index], 1))});
    }
    context_.exchange.run(sends, receives);
    LinkCosts largest = of_node;
    for (const LinkCosts& costs : theirs) {
      largest = larger_of(largest, costs);
    }
    return largest;
  }

  void put(int place, const LinkCosts& costs) {
    std::memcpy(context_.control_block.staging_in(context_.self(), place), &costs, sizeof(costs));
  }

  [[nodiscard]] LinkCosts at(int peer, int place) const {
    LinkCosts costs;
    std::memcpy(&costs, context_.control_block.staging_in(peer, place), sizeof(costs));
    return costs;
  }

  OperationContext& context_;
};

class LinkMeasurement {
 public:
  explicit LinkMeasurement(OperationContext& context) : context_(context) {}

  [[nodiscard]] LinkCosts run() {
    LinkCosts mine;
    context_.sync();
    if (context_.n_local() > 1) {
      measure_node(mine);
    }
    if (context_.topology.n_nodes() > 1 && context_.self() == 0) {
      measure_network(mine);
    }
    return LinkAgreement(context_).agree(mine);
  }

 private:
  void measure_node(LinkCosts& costs) {
    const auto meet = [&] { context_.sync(); };
    (void)seconds_each(kMeetings, meet);  // Ranks come into step.
    costs.session = seconds_each(kMeetings, meet);
    const int peer = (context_.self() + 1) % context_.n_local();
    double least = std::numeric_limits<double>::max();
    for (int copy = 0; copy < kCopies; ++copy) {
      std::memset(context_.control_block.staging_in(context_.self(), 0), copy, kCopiedBytes);
      context_.sync();
      least = std::min(least, seconds_of([&] {
                         std::memcpy(context_.control_block.staging_out(context_.self(), 0),
                                     context_.control_block.staging_in(peer, 0),
                                     kCopiedBytes);
                       }));
      context_.sync();
    }
    costs.local_byte = least / kCopiedBytes;
  }

  void measure_network(LinkCosts& costs) {
    const int n_nodes = context_.topology.n_nodes();
    const int node = context_.topology.node();
    const std::array next{leader_of(context_.topology, (node + 1) % n_nodes)};
    const std::array previous{leader_of(context_.topology, (node + n_nodes - 1) % n_nodes)};
    // The first messages open the connections.
    const std::vector<int> leaders = context_.leaders_elsewhere();
    exchange(leaders, leaders, 0);
    const double one = seconds_each(kSmallExchanges, [&] { exchange(next, previous, 0); });
    const double all = seconds_each(kSmallExchanges, [&] { exchange(leaders, leaders, 0); });
    const double large =
        seconds_each(kLargeExchanges, [&] { exchange(next, previous, kSentBytes); });
    const int n_further = std::max(2 * (n_nodes - 2), 1);
    costs.latency = one;
    costs.message = std::max(all - one, 0.0) / n_further;
    costs.remote_byte = std::max(large - one, 0.0) / kSentBytes;
  }

  // The same number of bytes to each of `to` and from each of `from`.
  void exchange(std::span<const int> to, std::span<const int> from, std::size_t n_bytes) {
    context_.scratch.resize(std::max(context_.scratch.size(), 2 * n_bytes));
    const std::span<std::byte> memory = context_.scratch;
    std::vector<tcp::Outgoing> sends;
    std::vector<tcp::Incoming> receives;
    for (const int rank : to) {
      sends.push_back({.rank = rank, .data = memory.first(n_bytes)});
    }
    for (const int rank : from) {
      receives.push_back({.rank = rank, .data = memory.subspan(n_bytes, n_bytes)});
    }
    context_.exchange.run(sends, receives);
  }

  OperationContext& context_;
};

}  // namespace

LinkCosts measure_links(OperationContext& context) {
  return LinkMeasurement(context).run();
}

std::optional<LinkCosts> agree_on_links(OperationContext& context,
                                        const std::optional<LinkCosts>& given) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  const LinkCosts none{.session = kNone,
                       .local_byte = kNone,
                       .latency = kNone,
                       .message = kNone,
                       .remote_byte = kNone};
  const LinkCosts agreed = LinkAgreement(context).agree(given.value_or(none));
  return agreed.session == kNone ? std::nullopt : std::optional(agreed);
}

}  // namespace unisono::engine
