#include "unisono/launch/generations.h"

#include <fmt/format.h>

#include <algorithm>

#include "unisono/base/error.h"
#include "unisono/launch/stall_watch.h"

namespace unisono::launch {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kShortLife{10};
constexpr milliseconds kFirstDelay{100};
constexpr milliseconds kLongestDelay{10'000};

}  // namespace

std::optional<milliseconds> RestartPolicy::restart_after(const GenerationEnd& end) {
  if (!end.has_failed || n_used_ == max_restarts_) {
    return std::nullopt;
  }
  ++n_used_;
  if (n_used_ == 1 || end.lifetime >= kShortLife) {
    delay_ = milliseconds(0);
  } else {
    delay_ = std::clamp(2 * delay_, kFirstDelay, kLongestDelay);
  }
  return delay_;
}

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
  if (const std::optional<LateRankWaits> late =
          find_late_rank(group.waits(), job_.stall_timeout, now)) {
    group.give_up(late->rank, now - late->since, describe_waits(*late, now));
  }
}

void LocalGenerations::take_end(const GroupEnd& end) {
  last_ = end;
}

// The next generation gets an empty store, on another port unless the user chose a port. A rank
// that is left over from the last generation therefore cannot reach the new store.
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
