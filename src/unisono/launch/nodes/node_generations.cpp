#include "unisono/launch/nodes/node_generations.h"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "unisono/base/deadline.h"
#include "unisono/launch/cause.h"
#include "unisono/launch/environment.h"
#include "unisono/launch/generations.h"
#include "unisono/launch/late_rank.h"
#include "unisono/launch/nodes/coordinator.h"
#include "unisono/launch/nodes/messages.h"
#include "unisono/launch/nodes/node_member.h"
#include "unisono/launch/report.h"
#include "unisono/launch/worker_group.h"

namespace unisono::launch::nodes {
namespace {

// Until all nodes have heard that the job is over, which they say by hanging up.
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
        continue;  // This node gets it, too.
      }
      if (!has_front_) {
        waiting.say("the ranks of this node are ended: " + order->why);
      }
      stop(group, order->why);
    } else if (const auto* const late = std::get_if<GiveUp>(&*message);
               late != nullptr && late->generation == generation_) {
      group.give_up(late->rank, std::chrono::milliseconds(late->waited_ms), late->waits);
      tell_end(group);  // Before others tell of failures that come of it.
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
    // Else who has started all nodes ends them: by the signal, where one has ended node 0 first.
    if (!has_front_) {
      stop(group, member_->problem());
    }
  }
}

// The coordinator knows those of the other nodes, too, and whether all are late for one rank.
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

// Ranks that end already have their time for it.
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

// What is no rank's failure is this node's: it can't run ranks any more, or is not to. Of a signal
// that all have got, take_end() tells.
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
    tell_failure(end.cause->exit_code, end.failure);  // Was found at the end only.
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

}  // namespace unisono::launch::nodes
