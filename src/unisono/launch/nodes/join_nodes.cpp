#include "unisono/launch/nodes/join_nodes.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/base/text.h"
#include "unisono/launch/messages.h"
#include "unisono/launch/nodes/coordinator.h"
#include "unisono/launch/nodes/node_connection.h"
#include "unisono/launch/nodes/node_member.h"
#include "unisono/launch/report.h"
#include "unisono/launch/stall_watch.h"
#include "unisono/launch/worker_group.h"
#include "unisono/net/address.h"
#include "unisono/net/host.h"
#include "unisono/net/socket.h"
#include "unisono/rendezvous/serve_store.h"

namespace unisono::launch::nodes {

/// The generations of this node in a job of several nodes, as the coordinator orders them.
///
/// The launcher owns the object for the whole job. All functions run on the thread of the agent's
/// loop. A lost coordinator or a refusal becomes the outcome().
class NodeGenerations final : public Generations {
 public:
  /// `coordinator` is null unless this node is node 0. `job` holds the settings that are equal for
  /// all generations. With a front launcher (`has_front`), signals to this node reach all other
  /// nodes as well, and the ranks of each node end on their own.
  NodeGenerations(std::unique_ptr<Coordinator> coordinator,
                  std::unique_ptr<NodeMember> member,
                  const JobLayout& job,
                  bool has_front);

  [[nodiscard]] std::optional<JobLayout> next(const Waiting& waiting) override;
  void watch(WorkerGroup& group, const Waiting& waiting) override;
  void take_end(const GroupEnd& end) override;

  [[nodiscard]] std::optional<Outcome> outcome() const override { return outcome_; }

 private:
  void end(int exit_code, const std::string& report);
  void stop(WorkerGroup& group, const std::string& why);
  void tell_end(const WorkerGroup& group);
  void tell_waits(WorkerGroup& group);
  void tell_others(const Cause& cause, const WorkerGroup& group);
  void tell_failure(int exit_code, const std::string& what);
  void leave(const Leave& message);
  [[nodiscard]] JobLayout layout(const Start& order) const;
  void wait_for_others(const Waiting& waiting);

  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<NodeMember> member_;
  JobLayout job_;
  bool has_front_;
  std::uint64_t generation_ = 0;
  bool is_stopped_ = false;  // The present generation is stopped, or its failure is reported.
  bool has_left_ = false;
  std::optional<Outcome> outcome_;
};

namespace {

// Time for all nodes to receive the end of the job; each node closes its connection after that
// message.
constexpr std::chrono::seconds kGoodbye{3};

}  // namespace

NodeGenerations::NodeGenerations(std::unique_ptr<Coordinator> coordinator,
                                 std::unique_ptr<NodeMember> member,
                                 const JobLayout& job,
                                 bool has_front)
    : coordinator_(std::move(coordinator)),
      member_(std::move(member)),
      job_(job),
      has_front_(has_front) {}

std::optional<JobLayout> NodeGenerations::next(const Waiting& waiting) {
  while (!outcome_ && !has_left_) {
    while (const std::optional<Message> message = member_->take()) {
      if (const auto* const start = std::get_if<Start>(&*message)) {
        generation_ = start->generation;
        is_stopped_ = false;
        return layout(*start);
      }
      if (const auto* const notice = std::get_if<Notice>(&*message)) {
        waiting.say(notice->text);
      } else if (const auto* const refused = std::get_if<Refused>(&*message)) {
        end(kLauncherFailed, "can't join the job: " + refused->why);
      } else if (const auto* const over = std::get_if<End>(&*message)) {
        end(over->exit_code, over->report);
      }
    }
    if (!outcome_ && !member_->problem().empty()) {
      end(kLauncherFailed, member_->problem());
    }
    if (!outcome_ && !waiting.run_once(Deadline::never())) {
      leave({kLauncherFailed, "it was ended while no ranks ran"});
    }
  }
  wait_for_others(waiting);
  return std::nullopt;
}

void NodeGenerations::watch(WorkerGroup& group, const Waiting& waiting) {
  tell_end(group);
  tell_waits(group);
  while (const std::optional<Message> message = member_->take()) {
    if (const auto* const order = std::get_if<Stop>(&*message);
        order != nullptr && order->generation == generation_) {
      if (has_front_ && order->is_by_signal) {
        continue;  // This node receives the signal as well.
      }
      if (!has_front_) {
        waiting.say("the ranks of this node are ended: " + order->why);
      }
      stop(group, order->why);
    } else if (const auto* const late = std::get_if<GiveUp>(&*message);
               late != nullptr && late->generation == generation_) {
      group.give_up(late->rank, std::chrono::milliseconds(late->waited_ms), late->waits);
      tell_end(group);  // Must precede reports of the failures that it causes.
    } else if (const auto* const notice = std::get_if<Notice>(&*message)) {
      waiting.say(notice->text);
    } else if (const auto* const over = std::get_if<End>(&*message)) {
      end(over->exit_code, over->report);
      if (!has_front_ || over->exit_code <= kSignalBase) {
        stop(group, over->report);
      }
    }
  }
  if (!outcome_ && !member_->problem().empty()) {
    end(kLauncherFailed, member_->problem());
    // With a front launcher, that launcher ends all nodes: by the signal, if a signal has ended
    // node 0 first.
    if (!has_front_) {
      stop(group, member_->problem());
    }
  }
}

// Sends changed waits to the coordinator, which combines the waits of all nodes to find the late
// rank.
void NodeGenerations::tell_waits(WorkerGroup& group) {
  const auto now = Deadline::Clock::now();
  for (const std::size_t worker : group.take_changed_waits()) {
    Waits message{.generation = generation_, .rank = group.workers()[worker].rank};
    for (const RankWait& wait : group.waits_of(worker)) {
      const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(now - wait.since);
      message.waits.push_back({.waited_ms = waited.count(),
                               .operation = wait.operation,
                               .late = {wait.late.begin(), wait.late.end()}});
    }
    member_->send(message);
  }
}

// A group that ends already keeps its own cause and grace period.
void NodeGenerations::stop(WorkerGroup& group, const std::string& why) {
  is_stopped_ = true;
  if (!group.cause()) {
    group.fail({kLauncherFailed, std::nullopt, why});
  }
}

void NodeGenerations::tell_end(const WorkerGroup& group) {
  if (const std::optional<Cause>& cause = group.cause(); cause && !is_stopped_) {
    is_stopped_ = true;
    tell_others(*cause, group);
  }
}

// Reports a failed rank or a lost guardian as a failure of the generation. Any other cause makes
// the node leave the job. take_end() reports a signal that all nodes have received.
void NodeGenerations::tell_others(const Cause& cause, const WorkerGroup& group) {
  if (cause.failed_worker) {
    tell_failure(cause.exit_code,
                 describe_failed_rank(group.workers()[*cause.failed_worker], job_.host));
  } else if (cause.is_lost_guardian) {
    tell_failure(cause.exit_code, cause.message);
  } else if (!has_front_ || cause.exit_code <= kSignalBase) {
    leave({cause.exit_code, cause.message});
  }
}

void NodeGenerations::tell_failure(int exit_code, const std::string& what) {
  member_->send(Failed{.generation = generation_, .exit_code = exit_code, .what = what});
}

void NodeGenerations::leave(const Leave& message) {
  if (!has_left_) {
    has_left_ = true;
    member_->send(message);
  }
}

void NodeGenerations::take_end(const GroupEnd& end) {
  if (!end.may_go_on) {
    leave({end.cause ? end.cause->exit_code : kLauncherFailed,
           end.cause ? end.cause->message : "it can't start ranks any more"});
    return;
  }
  if (end.cause && !end.failure.empty() && !is_stopped_) {
    tell_failure(end.cause->exit_code, end.failure);  // The failure was detected only at the end.
  }
  member_->send(Over{generation_, end.failure.empty() ? "" : end.report});
}

JobLayout NodeGenerations::layout(const Start& order) const {
  JobLayout job = job_;
  job.node_rank = order.node_rank;
  job.n_nodes = order.n_nodes;
  job.first_rank = order.first_rank;
  job.world_size = order.world_size;
  job.restart_count = order.restart_count;
  job.max_restarts = order.max_restarts;
  job.run_id = order.run_id;
  job.has_agent_store = order.has_store;
  job.master_port = order.master_port;
  return job;
}

void NodeGenerations::end(int exit_code, const std::string& report) {
  outcome_ = Outcome{exit_code, report};
}

void NodeGenerations::wait_for_others(const Waiting& waiting) {
  if (coordinator_ == nullptr) {
    return;
  }
  member_.reset();
  const Deadline end = Deadline::after(kGoodbye);
  while (!coordinator_->is_alone() && !end.has_passed()) {
    (void)waiting.run_once(end);
  }
}

namespace {

CoordinatorOptions coordinator_options(const JoinRequest& request) {
  const NodesOptions& nodes = request.nodes;
  const bool has_secret = !request.secret.empty();
  const net::Address address = rendezvous::listen_address(nodes.host, nodes.port, has_secret);
  const base::Logger logger("launcher", request.config.log_level);
  return {.address = address,
          .secret = request.secret,
          .keep_alive = {nodes.keep_alive_interval, nodes.max_keep_alives},
          .rendezvous = {.min_nodes = nodes.min_nodes,
                         .max_nodes = nodes.max_nodes,
                         .max_restarts = request.job.max_restarts,
                         .max_spares = nodes.max_spares,
                         .run_id = request.job.run_id,
                         .stall_timeout = request.job.stall_timeout,
                         .has_front = request.has_front,
                         .join_timeout = nodes.join_timeout,
                         .last_call = nodes.last_call},
          .store = {.address = rendezvous::listen_address(nodes.host, 0, has_secret),
                    .secret = request.secret,
                    .tls = request.config.tls,
                    .notes_turned_away = true,
                    .logger = base::Logger("store", request.config.log_level)},
          // PyTorch's clients cannot authenticate.
          .serves_store = !has_secret || !request.has_plain_clients,
          .logger = logger};
}

// Returns null if another node is the coordinator.
std::unique_ptr<Coordinator> start_coordinator(net::EventLoop& loop, const JoinRequest& request) {
  const NodesOptions& nodes = request.nodes;
  const bool is_given = nodes.node_rank >= 0 || nodes.is_coordinator;
  if (is_given && nodes.node_rank != 0 && !nodes.is_coordinator.value_or(false)) {
    return nullptr;
  }
  if (!is_given && !net::is_this_machine(nodes.host)) {
    return nullptr;
  }
  try {
    return std::make_unique<Coordinator>(loop, coordinator_options(request));
  } catch (const net::PortInUse& error) {
    if (!is_given) {
      return nullptr;  // Another node of this job on this machine has the port.
    }
    throw Error(error.code(),
                fmt::format("this is node 0, where the nodes meet, and {}; give all nodes another "
                            "--master-port or --rdzv-endpoint",
                            error.what()));
  }
}

Join make_join(const JoinRequest& request, bool is_coordinator) {
  return {.host = request.job.host,
          .pid = ::getpid(),
          .n_workers = request.job.local_world_size,
          .wanted_rank = request.nodes.node_rank,
          .min_nodes = request.nodes.min_nodes,
          .max_nodes = request.nodes.max_nodes,
          .run_id = request.wanted_run_id,
          .is_coordinator = is_coordinator,
          .stall_ms = request.job.stall_timeout.count()};
}

}  // namespace

std::unique_ptr<Generations> join_nodes(net::EventLoop& loop, const JoinRequest& request) {
  const NodesOptions& nodes = request.nodes;
  std::unique_ptr<Coordinator> coordinator = start_coordinator(loop, request);
  const bool is_coordinator = coordinator != nullptr;
  const bool is_reached_by_loopback = is_coordinator && coordinator->address().is_wildcard();
  const bool is_loopback = net::is_this_machine(nodes.host) && request.secret.empty();
  auto member = std::make_unique<NodeMember>(
      loop,
      MemberOptions{
          .host = is_reached_by_loopback ? net::loopback_host()
                  : is_coordinator       ? coordinator->address().ip()
                                         : nodes.host,
          .port = is_coordinator ? coordinator->address().port() : nodes.port,
          .secret = request.secret,
          .join = make_join(request, is_coordinator),
          .keep_alive = {nodes.keep_alive_interval, nodes.max_keep_alives},
          .join_timeout = nodes.join_timeout,
          .hint = is_loopback
                      ? " (only nodes on this machine can meet at this address: give all nodes "
                        "--master-addr or --rdzv-endpoint with the name of node 0)"
                      : ""});
  return std::make_unique<NodeGenerations>(
      std::move(coordinator), std::move(member), request.job, request.has_front);
}

}  // namespace unisono::launch::nodes
