#include "unisono/launch/nodes/node_rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <tuple>
#include <utility>
#include <variant>

#include "unisono/launch/report.h"

namespace unisono::launch::nodes {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::milliseconds;

constexpr int kNoRank = std::numeric_limits<int>::max();

}  // namespace

NodeRendezvous::NodeRendezvous(const RendezvousOptions& options, Time now)
    : options_(options), restarts_(options.max_restarts), late_ranks_(options.stall_timeout) {
  begin_gathering(now);
}

void NodeRendezvous::take(NodeId node, const Message& message, Time now) {
  std::visit(
      [&](const auto& alternative) {
        if constexpr (requires { this->take_from(node, alternative, now); }) {
          take_from(node, alternative, now);
        }
      },
      message);
  on_time(now);
}

void NodeRendezvous::take_from(NodeId node, const Join& message, Time /*now*/) {
  if (nodes_.contains(node)) {
    return;
  }
  const std::string why =
      phase_ == Phase::kOver ? "the job is over" : refusal(options_, joins(), message);
  if (!why.empty()) {
    orders_.push_back({node, Refused{why}});
    return;
  }
  nodes_.emplace(node, Node{.join = message, .order = n_joined_++});
  if (phase_ == Phase::kRunning && n_here() > options_.max_nodes) {
    orders_.push_back({node, Notice{"all places are taken; waiting as a spare node"}});
  }
}

void NodeRendezvous::take_from(NodeId node, const Failed& message, Time now) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end() || !found->second.is_in || message.generation != generation_ ||
      (phase_ != Phase::kRunning && phase_ != Phase::kStopping)) {
    return;
  }
  fail({node, message.exit_code, message.what}, now);
}

void NodeRendezvous::take_from(NodeId node, const Over& message, Time /*now*/) {
  const auto found = nodes_.find(node);
  if (found != nodes_.end() && found->second.is_in && message.generation == generation_) {
    found->second.is_running = false;
    found->second.report = message.report;
  }
}

void NodeRendezvous::take_from(NodeId node, const Leave& message, Time now) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) {
    return;
  }
  const Node left = std::move(found->second);
  nodes_.erase(found);
  const std::string what = fmt::format("{} left the job: {}", describe(left.join), message.why);
  if (left.join.is_coordinator) {
    end(message.exit_code, what);
  } else if (left.is_running) {
    fail({node, message.exit_code, what, message.exit_code > kSignalBase}, now);
    invite_back(left.join);
  }
}

// Shows the command that brings the node back, if the job cannot continue without the node and has
// a restart left.
void NodeRendezvous::invite_back(const Join& left) {
  if (phase_ == Phase::kStopping && !options_.has_front && n_here() < options_.min_nodes &&
      restarts_.n_used() < restarts_.max_restarts()) {
    notify(
        fmt::format("run the same command on {} to continue the job, which waits {:.0f} s for it "
                    "(--rdzv-conf join_timeout=SECONDS)",
                    left.host,
                    duration<double>(options_.join_timeout).count()));
  }
}

void NodeRendezvous::take_from(NodeId node, const Waits& message, Time now) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end() || !found->second.is_running || message.generation != generation_ ||
      !found->second.has_rank(message.rank)) {
    return;
  }
  late_ranks_.take(message, now);
}

// Sends GiveUp to the node of the late rank. That node then reports the rank as failed, like a rank
// that has ended.
void NodeRendezvous::give_late_rank_up(Time now) {
  const std::optional<LateRankWaits> late = late_ranks_.find(now);
  if (!late) {
    return;
  }
  const auto node = std::ranges::find_if(nodes_, [&](const auto& entry) {
    return entry.second.is_running && entry.second.has_rank(late->rank);
  });
  if (node != nodes_.end()) {
    late_ranks_.give_up(late->rank);
    orders_.push_back({node->first,
                       GiveUp{.generation = generation_,
                              .rank = late->rank,
                              .waited_ms = duration_cast<milliseconds>(now - late->since).count(),
                              .waits = describe_waits(*late, now)}});
  }
}

void NodeRendezvous::lose(NodeId node, const std::string& why, Time now) {
  take_from(node, Leave{.exit_code = kLauncherFailed, .why = why}, now);
  on_time(now);
}

void NodeRendezvous::fail(Failure failure, Time /*now*/) {
  if (phase_ != Phase::kRunning && phase_ != Phase::kStopping) {
    return;
  }
  if (failure_) {
    also_failed_.push_back(failure.what);
    return;
  }
  stop(failure.what, failure.node, failure.is_by_signal);
  failure_ = std::move(failure);
}

void NodeRendezvous::stop(const std::string& why, NodeId except, bool is_by_signal) {
  if (phase_ != Phase::kRunning) {
    return;
  }
  phase_ = Phase::kStopping;
  for (const auto& [id, node] : nodes_) {
    if (node.is_in && node.is_running && id != except) {
      orders_.push_back({id, Stop{generation_, why, is_by_signal}});
    }
  }
}

void NodeRendezvous::on_time(Time now) {
  if (phase_ == Phase::kRunning) {
    take_in_newcomer();
  }
  if (phase_ == Phase::kRunning) {
    give_late_rank_up(now);
  }
  if ((phase_ == Phase::kRunning || phase_ == Phase::kStopping) && is_nobody_running()) {
    end_generation(now);
  }
  if (phase_ == Phase::kPausing && now >= pause_end_) {
    begin_gathering(now);
  }
  if (phase_ == Phase::kGathering) {
    gather(now);
  }
}

// Stops the generation for a newcomer only while all nodes run, because nodes that are done would
// repeat their work.
void NodeRendezvous::take_in_newcomer() {
  const auto n_in =
      std::ranges::count_if(nodes_, [](const auto& entry) { return entry.second.is_in; });
  const auto n_running =
      std::ranges::count_if(nodes_, [](const auto& entry) { return entry.second.is_running; });
  const auto newcomer =
      std::ranges::find(nodes_, false, [](const auto& entry) { return entry.second.is_in; });
  if (newcomer != nodes_.end() && n_in == n_running && n_in < options_.max_nodes) {
    stop(fmt::format("{} has joined the job, so all ranks start again",
                     describe(newcomer->second.join)),
         0);
  }
}

NodeRendezvous::Time NodeRendezvous::next_due() const {
  if (phase_ == Phase::kPausing) {
    return pause_end_;
  }
  if (phase_ == Phase::kRunning) {
    return late_ranks_.next_due();
  }
  if (phase_ != Phase::kGathering) {
    return Time::max();
  }
  if (enough_since_) {
    return *enough_since_ + options_.last_call;
  }
  return gathering_since_ + std::min(options_.join_timeout, report_after_);
}

void NodeRendezvous::begin_gathering(Time now) {
  phase_ = Phase::kGathering;
  gathering_since_ = now;
  enough_since_.reset();
  report_after_ = options_.report_after;
}

void NodeRendezvous::gather(Time now) {
  const int n = has_coordinator() ? n_here() : 0;
  if (n < options_.min_nodes) {
    enough_since_.reset();
    report_missing(now);
    return;
  }
  if (!enough_since_) {
    enough_since_ = now;
  }
  if (n >= options_.max_nodes || now >= *enough_since_ + options_.last_call) {
    start(now);
  }
}

void NodeRendezvous::report_missing(Time now) {
  const auto waited = duration_cast<milliseconds>(now - gathering_since_);
  if (waited >= options_.join_timeout) {
    end(kLauncherFailed,
        fmt::format("not all nodes have joined within {} s (--rdzv-conf join_timeout=SECONDS): {}",
                    duration<double>(options_.join_timeout).count(),
                    describe_missing(options_, joins())));
  } else if (waited >= report_after_) {
    report_after_ *= 2;
    notify(fmt::format("still waiting after {:.0f} s for the nodes of the job: {}",
                       duration<double>(waited).count(),
                       describe_missing(options_, joins())));
  }
}

std::vector<NodeRendezvous::NodeId> NodeRendezvous::chosen() const {
  std::vector<NodeId> ids;
  for (const auto& [id, node] : nodes_) {
    ids.push_back(id);
  }
  std::ranges::sort(ids, {}, [this](NodeId id) {
    const Node& node = nodes_.at(id);
    const int wanted = node.join.wanted_rank >= 0 ? node.join.wanted_rank : node.rank;
    return std::tuple(!node.join.is_coordinator, wanted < 0 ? kNoRank : wanted, node.order);
  });
  ids.resize(std::min(ids.size(), static_cast<std::size_t>(options_.max_nodes)));
  return ids;
}

void NodeRendezvous::start(Time now) {
  phase_ = Phase::kRunning;
  started_ = now;
  ++generation_;
  failure_.reset();
  also_failed_.clear();
  late_ranks_.start();
  for (auto& [id, node] : nodes_) {
    node.is_in = false;
    node.is_running = false;
    node.report.clear();
    node.rank = -1;
  }
  const std::vector<NodeId> members = chosen();
  Start order{.generation = generation_,
              .n_nodes = static_cast<std::int32_t>(members.size()),
              .world_size = 0,
              .restart_count = restarts_.n_used(),
              .max_restarts = restarts_.max_restarts(),
              .run_id = options_.run_id};
  for (const NodeId id : members) {
    order.world_size += nodes_.at(id).join.n_workers;
  }
  for (const NodeId id : members) {
    Node& node = nodes_.at(id);
    node.is_in = true;
    node.is_running = true;
    node.rank = order.node_rank;
    node.first_rank = order.first_rank;
    orders_.push_back({id, order});
    ++order.node_rank;
    order.first_rank += node.join.n_workers;
  }
}

void NodeRendezvous::end_generation(Time now) {
  if (phase_ == Phase::kRunning) {
    end(0, "");
  } else if (failure_) {
    restart_after(*failure_, now);
  } else {
    begin_gathering(now);
  }
}

void NodeRendezvous::restart_after(const Failure& failure, Time now) {
  const std::optional<milliseconds> delay =
      restarts_.restart_after({.has_failed = true, .lifetime = now - started_});
  if (!delay) {
    end(failure.exit_code, report(failure));
    return;
  }
  past_failures_.push_back(failure.what);
  notify(fmt::format(
      "{}\nrestart {} of {}", report(failure), restarts_.n_used(), restarts_.max_restarts()));
  pause_end_ = now + *delay;
  phase_ = Phase::kPausing;
}

std::string NodeRendezvous::report(const Failure& failure) const {
  std::string text;
  const auto node = nodes_.find(failure.node);
  const bool has_report = node != nodes_.end() && !node->second.report.empty();
  text += has_report ? node->second.report : failure.what;
  for (const std::string& also : also_failed_) {
    text += "\n  failed after it: " + also;
  }
  return text;
}

void NodeRendezvous::end(int exit_code, const std::string& report) {
  if (phase_ == Phase::kOver) {
    return;
  }
  phase_ = Phase::kOver;
  const std::string restarts =
      past_failures_.empty() ? "" : restart_report(past_failures_, restarts_.max_restarts());
  const char* separator = restarts.empty() || report.empty() ? "" : "\n";
  tell_all(End{exit_code, restarts + separator + report});
}

bool NodeRendezvous::has_coordinator() const {
  return std::ranges::any_of(nodes_,
                             [](const auto& entry) { return entry.second.join.is_coordinator; });
}

bool NodeRendezvous::is_nobody_running() const {
  return std::ranges::none_of(nodes_, [](const auto& entry) { return entry.second.is_running; });
}

int NodeRendezvous::n_here() const {
  return static_cast<int>(nodes_.size());
}

std::vector<Join> NodeRendezvous::joins() const {
  std::vector<Join> joins;
  for (const auto& [id, node] : nodes_) {
    joins.push_back(node.join);
  }
  return joins;
}

void NodeRendezvous::notify(const std::string& text) {
  for (const auto& [id, node] : nodes_) {
    if (!options_.has_front || node.join.is_coordinator) {
      orders_.push_back({id, Notice{text}});
    }
  }
}

void NodeRendezvous::tell_all(const Message& message) {
  for (const auto& [id, node] : nodes_) {
    orders_.push_back({id, message});
  }
}

std::vector<NodeRendezvous::Order> NodeRendezvous::take_orders() {
  return std::exchange(orders_, {});
}

}  // namespace unisono::launch::nodes
