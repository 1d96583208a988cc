#include "unisono/launch/local_generations.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/launch/cause.h"
#include "unisono/launch/environment.h"
#include "unisono/launch/generations.h"
#include "unisono/launch/late_rank.h"
#include "unisono/launch/report.h"
#include "unisono/launch/worker_group.h"
#include "unisono/net/event_loop.h"
#include "unisono/store/tcp_server.h"

namespace unisono::launch {

LocalGenerations::LocalGenerations(net::EventLoop& loop,
                                   const JobLayout& job,
                                   const store::TcpServerOptions& store)
    : loop_(loop),
      job_(job),
      store_options_(store),
      store_(std::make_unique<store::TcpStoreServer>(loop, store)),
      restarts_(job.max_restarts) {}

std::optional<JobLayout> LocalGenerations::next(const Waiting& waiting) {
  if (last_ && !prepare_restart(*last_, waiting)) {
    return std::nullopt;
  }
  job_.master_port = store_->address().port();
  job_.restart_count = restarts_.n_used();
  return job_;
}

void LocalGenerations::watch(WorkerGroup& group, const Waiting& /*waiting*/) {
  const auto now = Deadline::Clock::now();
  if (const std::optional<LateRank> late = find_late_rank(group.waits(), job_.stall_timeout, now)) {
    group.give_up(late->rank, now - late->since, describe_waits(*late, now));
  }
}

void LocalGenerations::take_end(const GroupEnd& end) {
  last_ = end;
}

// The next one gets an empty store, at another port unless the user chose one: a rank of the last
// generation, were there one, would find nobody.
bool LocalGenerations::prepare_restart(const GroupEnd& last, const Waiting& waiting) {
  const std::optional<std::chrono::milliseconds> delay = restarts_.restart_after(
      {.has_failed = !last.failure.empty() && last.may_go_on, .lifetime = last.lifetime});
  if (!delay) {
    outcome_ = Outcome{last.cause ? last.cause->exit_code : 0, last.report};
    return false;
  }
  failures_.push_back(last.failure);
  waiting.say(fmt::format(
      "{}\nrestart {} of {}", last.report, restarts_.n_used(), restarts_.max_restarts()));
  const Deadline end = Deadline::after(*delay);
  while (!end.has_passed()) {
    if (!waiting.run_once(end)) {
      return false;
    }
  }
  store_.reset();
  try {
    store_ = std::make_unique<store::TcpStoreServer>(loop_, store_options_);
  } catch (const Error& error) {
    outcome_ = Outcome{kLauncherFailed, error.what()};
    return false;
  }
  return true;
}

std::optional<Outcome> LocalGenerations::outcome() const {
  if (!outcome_ || failures_.empty()) {
    return outcome_;
  }
  const std::string restarts = restart_report(failures_, restarts_.max_restarts());
  return Outcome{outcome_->exit_code,
                 outcome_->report.empty() ? restarts : restarts + "\n" + outcome_->report};
}

}  // namespace unisono::launch
