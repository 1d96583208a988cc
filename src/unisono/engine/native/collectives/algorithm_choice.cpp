#include "unisono/engine/native/collectives/algorithm_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/remote/exchange.h"
#include "unisono/transport/shm/control_block.h"

namespace unisono::engine {

/// Measures this rank's costs of moving data, in seconds: some meetings and copies within each
/// node, and about twenty round trips between the lowest ranks of the nodes. Every rank of the
/// group must call this function, after an operation that all have called.
[[nodiscard]] static LinkCosts measure_links(OperationContext& context);

/// Returns the largest costs of any rank, equal on all ranks; std::nullopt if a rank has no costs.
/// Every rank of the group must call this function.
[[nodiscard]] static std::optional<LinkCosts> agree_on_links(OperationContext& context,
                                                             const std::optional<LinkCosts>& mine);

namespace {

// Costs are exchanged as bytes.
static_assert(std::is_trivially_copyable_v<LinkCosts>);

// Numbers and sizes of the measured actions.
constexpr int kMeetings = 32;
constexpr int kCopies = 3;
constexpr int kSmallExchanges = 8;
constexpr int kLargeExchanges = 2;
constexpr std::size_t kCopiedBytes = 64 << 10;
constexpr std::size_t kSentBytes = 256 << 10;

// Returns the time of an action, averaged over `n` consecutive actions. Each waits for the previous
// action of another rank. The time of a single action would be zero on a late rank.
template <class Action>
double seconds_each(int n, Action action) {
  const double total = seconds_of([&] {
    for (int repetition = 0; repetition < n; ++repetition) {
      action();
    }
  });
  return total / n;
}

// Returns the larger value of each cost.
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

// Measures a meeting, and a copy from a neighbor's staging buffer.
void measure_node(OperationContext& context, LinkCosts& costs) {
  const auto meet = [&] { context.sync(); };
  (void)seconds_each(kMeetings, meet);  // Synchronizes the ranks.
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

// Sends `n_bytes` to each rank of `to`, and receives as many from each rank of `from`.
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

// Measures exchanges with the neighboring nodes in a ring, and with all nodes.
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

// Agreement within each node, then between the nodes, then within each node again.
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

namespace {

constexpr double kMicro = 1e6;

// Link costs do not affect smaller contributions: the algorithm with the fewest steps is fastest.
constexpr std::int64_t kLeastBytesToLearnFrom = shm::kInlineBytes + 1;

// Returns the link costs for the debug log, with a leading comma.
std::string describe(const collective::Topology& topology, const LinkCosts& links) {
  std::string text;
  if (topology.local_world_size() > 1) {
    text += fmt::format(
        ", a meeting {:.2f} us, {:.1f} GB/s", links.session * kMicro, 1e-9 / links.local_byte);
  }
  if (topology.n_nodes() > 1) {
    text += fmt::format(", between nodes {:.1f} us, each further message {:.1f} us, {:.2f} GB/s",
                        links.latency * kMicro,
                        links.message * kMicro,
                        1e-9 / links.remote_byte);
  }
  return text;
}

}  // namespace

collective::Receivers receivers_of(const Operation& operation) {
  using Kind = collective::Receivers::Kind;
  switch (operation.descriptor.kind) {
    case transport::OperationKind::kReduce:
      return {.kind = Kind::kRoot, .root = operation.descriptor.root};
    case transport::OperationKind::kReduceScatter:
    case transport::OperationKind::kReduceScatterCoalesced:
      return {.kind = Kind::kOwner};
    default:
      return {.kind = Kind::kAll};
  }
}

std::int64_t contribution_bytes(const Operation& operation) {
  return operation.descriptor.count *
         static_cast<std::int64_t>(size_of(operation.descriptor.dtype));
}

AlgorithmChoice::AlgorithmChoice(const collective::Topology& topology,
                                 const GroupContext& group,
                                 const std::optional<LinkCosts>& links)
    : topology_(topology), group_(group), given_(links), chooser_(topology, {}, shm::kSlotBytes) {}

void AlgorithmChoice::check(const Operation& operation) const {
  using Kind = collective::Receivers::Kind;
  const transport::Descriptor& descriptor = operation.descriptor;
  const char* const algorithm = to_string(descriptor.algorithm);
  const Kind receivers = receivers_of(operation).kind;
  // Between nodes a rank that receives a single block has no use for the other blocks.
  if (descriptor.algorithm == Algorithm::kOneShot && receivers == Kind::kOwner &&
      topology_.n_nodes() > 1) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("algorithm {} is for {} on one node, and the group has {}; use auto or "
                            "two_shot",
                            algorithm,
                            to_string(descriptor.kind),
                            topology_.n_nodes()));
  }
  const std::int64_t n_bytes = contribution_bytes(operation);
  if (descriptor.algorithm == Algorithm::kOneShot && n_bytes > shm::kSlotBytes) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "algorithm {} takes at most {} bytes, not {}", algorithm, shm::kSlotBytes, n_bytes));
  }
  if (collective::goes_in_steps(descriptor.algorithm) && receivers != Kind::kAll) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("algorithm {} is for all_reduce; use auto, one_shot or two_shot", algorithm));
  }
}

Algorithm AlgorithmChoice::choose(const Operation& operation) {
  if (operation.descriptor.algorithm != Algorithm::kAuto) {
    return operation.descriptor.algorithm;
  }
  const collective::Receivers receivers = receivers_of(operation);
  const Algorithm algorithm = cheapest(receivers.kind, contribution_bytes(operation));
  if (topology_.rank() == 0 && group_.logger.is_enabled(LogLevel::kDebug)) [[unlikely]] {
    explain(operation, receivers);
  }
  return algorithm;
}

Algorithm AlgorithmChoice::cheapest(collective::Receivers::Kind receivers, std::int64_t n_bytes) {
  if (last_.n_bytes != n_bytes || last_.receivers != receivers) {
    last_ = {.receivers = receivers,
             .n_bytes = n_bytes,
             .algorithm = chooser_.choose(receivers, n_bytes)};
  }
  return last_.algorithm;
}

void AlgorithmChoice::explain(const Operation& operation, const collective::Receivers& receivers) {
  const std::int64_t n_bytes = contribution_bytes(operation);
  const auto magnitude = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(n_bytes)));
  if (!explained_.emplace(receivers.kind, magnitude).second) {
    return;
  }
  std::string text;
  for (const auto& [algorithm, seconds] : chooser_.estimates(receivers.kind, n_bytes)) {
    text += fmt::format(
        "{}{} {:.1f} us", text.empty() ? "" : ", ", to_string(algorithm), seconds * kMicro);
  }
  group_.logger.debug(fmt::format(
      "{} {}, {} bytes: estimated {}; the first is taken; links: {}{}",
      group_.prefix,
      transport::describe(operation.descriptor, operation.sequence, {}, group_.job_ranks),
      n_bytes,
      text,
      source_,
      describe(topology_, agreed_.value_or(LinkCosts{}))));
}

void AlgorithmChoice::learn(OperationContext& context) {
  const bool is_worth_it = context.operation.descriptor.algorithm == Algorithm::kAuto &&
                           contribution_bytes(context.operation) >= kLeastBytesToLearnFrom;
  if (agreed_ || !is_worth_it || !collective::Chooser::depends_on_links(topology_)) {
    return;
  }
  agreed_ = agree_on_links(context, given_);
  source_ = agreed_ ? "given" : "measured";
  if (!agreed_) {
    agreed_ = agree_on_links(context, measure_links(context));
  }
  UNISONO_CHECK(agreed_.has_value(), "ranks agree on costs that each has measured");
  chooser_ = collective::Chooser(topology_, *agreed_, shm::kSlotBytes);
  last_ = {};
  explained_.clear();
}

}  // namespace unisono::engine
