#include "unisono/launch/worker_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>

#include "unisono/base/error.h"
#include "unisono/base/process.h"
#include "unisono/base/wait_record.h"
#include "unisono/launch/process/channel.h"

namespace unisono::launch {
namespace {

// The guardian reports a failure after 10 s (kill) or 30 s (spawn) at the latest.
constexpr std::chrono::seconds kKillAnswer{12};
constexpr std::chrono::seconds kSpawnAnswer{40};
// Time for answers that a working guardian gives at once.
constexpr std::chrono::seconds kEndAnswer{5};
constexpr std::chrono::seconds kKillTaken{3};
// The guardian kills leftovers sooner.
constexpr std::chrono::seconds kLeftoversEnd{5};

// Only rank 0 may read stdin. A job in the background must not, because reading would take the
// terminal's input from the shell.
bool may_pass_stdin(int node_rank) {
  const bool in_background =
      ::isatty(STDIN_FILENO) == 1 && ::tcgetpgrp(STDIN_FILENO) != ::getpgrp();
  return node_rank == 0 && !in_background;
}

}  // namespace

WorkerGroup::WorkerGroup(net::EventLoop& loop,
                         GuardianLink& guardian,
                         Outputs& outputs,
                         const Program& program,
                         const WorkerGroupOptions& options)
    : guardian_(guardian),
      outputs_(outputs),
      program_(program),
      options_(options),
      grace_(options.grace),
      ends_(loop, [this] { on_unreported_end(); }),
      null_(::open("/dev/null", O_RDWR | O_CLOEXEC)),
      errors_(static_cast<std::size_t>(options.job.local_world_size)),
      workers_(errors_.size()),
      started_(workers_.size()) {
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    workers_[i].rank = options.job.first_rank + static_cast<int>(i);
  }
  if (options.job.stall_timeout > std::chrono::milliseconds::zero()) {
    stalls_.emplace(options.job.first_rank, workers_.size());
  }
}

void WorkerGroup::start() {
  start_ = Clock::now();
  kills_before_ = count_memory_kills();
  spawn_next();
}

// Ranks are started in sequence, so that a program that cannot be executed fails once and not once
// per rank.
void WorkerGroup::spawn_next() {
  if (n_ordered_ == workers_.size() || phase_ != Phase::kRunning) {
    return;
  }
  const int local_rank = static_cast<int>(n_ordered_++);
  Outputs::Ends ends;
  try {
    make_rank_folder(options_.job, local_rank);
    ends = outputs_.open(local_rank);
  } catch (const Error& error) {
    fail({kLauncherFailed, std::nullopt, error.what()});
    return;
  }
  const bool gets_stdin = local_rank == 0 && may_pass_stdin(options_.job.node_rank);
  awaits_spawn_ = true;
  phase_deadline_ = Deadline::after(kSpawnAnswer);
  std::vector<std::string> environment = worker_environment(options_.job, local_rank);
  environment.push_back("TORCHELASTIC_ERROR_FILE=" +
                        errors_[static_cast<std::size_t>(local_rank)].path());
  if (stalls_) {
    environment.push_back(fmt::format(
        "{}={}", kWaitFileVariable, stalls_->path(static_cast<std::size_t>(local_rank))));
  }
  const bool takes_argument = program_.local_rank_at > 0;
  const bool sent = guardian_.channel().send(
      Spawn{.local_rank = local_rank,
            .environment = std::move(environment),
            .argument =
                takes_argument ? fmt::format("{}={}", program_.local_rank_option, local_rank) : "",
            .argument_at = static_cast<std::uint32_t>(program_.local_rank_at),
            .cores = cores_for(options_.job, static_cast<std::size_t>(local_rank))},
      false,
      {gets_stdin ? STDIN_FILENO : null_.get(), ends.out.get(), ends.err.get()});
  if (!sent) {
    fail({kLauncherFailed, std::nullopt, "the guardian process does not accept requests"});
  }
}

void WorkerGroup::fail(Cause cause) {
  if (!cause_) {
    cause_ = std::move(cause);
  }
  terminate();
}

void WorkerGroup::give_up(int rank, std::chrono::nanoseconds waited, const std::string& waits) {
  const auto found = std::ranges::find(workers_, rank, &WorkerRecord::rank);
  if (cause_ || found == workers_.end() || found->state != WorkerRecord::State::kRunning) {
    return;
  }
  const auto index = static_cast<std::size_t>(found - workers_.begin());
  found->lifetime = Clock::now() - started_[index];
  found->given_up = fmt::format("others have waited for it for {} (--stall-timeout), and {}",
                                describe_seconds(waited),
                                describe_process(index));
  found->waits = waits;
  fail({kGivenUp, index, ""});
}

// Describes the waiting process as long as it exists; a rank may be the child of a shell.
std::string WorkerGroup::describe_process(std::size_t index) const {
  const pid_t pid = workers_[index].pid;
  const pid_t waiting = stalls_ ? stalls_->pid(index).value_or(pid) : pid;
  return waiting != pid && ::getpgid(waiting) == pid
             ? fmt::format("its process {} is {}", waiting, describe_process_state(waiting))
             : fmt::format("its process is {}", describe_process_state(pid));
}

std::span<const RankWait> WorkerGroup::waits() const {
  return stalls_ ? stalls_->waits() : std::span<const RankWait>();
}

std::vector<std::size_t> WorkerGroup::take_changed_waits() {
  return stalls_ ? stalls_->take_changed() : std::vector<std::size_t>();
}

void WorkerGroup::stop(const CaughtSignal& signal) {
  if (phase_ == Phase::kOver) {
    return;
  }
  if (!cause_) {
    cause_ = signal_cause(signal.number);
  }
  const bool is_cut_short = grace_.is_cut_short_by(signal);
  if (phase_ == Phase::kRunning) {
    ask_to_end(signal.number == SIGTERM ? Phase::kTerminating : Phase::kInterrupted, signal.number);
  } else if (is_cut_short && phase_ != Phase::kKilling) {
    outputs_.message(grace_.describe_cut(running_ranks()));
    kill();
  }
}

void WorkerGroup::pass_on(int signal_number) {
  order(Signal{signal_number});
}

void WorkerGroup::handle(const Message& message) {
  std::visit(
      [this](const auto& alternative) {
        if constexpr (requires { this->on_message(alternative); }) {
          on_message(alternative);
        }
      },
      message);
}

void WorkerGroup::on_guardian_gone() {
  if (phase_ == Phase::kOver) {
    return;
  }
  mark_running_as_ended_by_us();
  if (!cause_) {
    cause_ = lost_guardian_cause(guardian_.pid(), options_.job.host);
  }
  phase_ = Phase::kOver;
}

void WorkerGroup::on_message(const Started& message) {
  const auto index = static_cast<std::size_t>(message.local_rank);
  workers_[index].pid = message.pid;
  workers_[index].state = WorkerRecord::State::kRunning;
  started_[index] = Clock::now();
  awaits_spawn_ = false;
  ends_.add(index, message.pid);
  if (message.local_rank == 0) {
    // If rank 0 closes its stdin, the process that writes to that pipe must get an error.
    ::dup2(null_.get(), STDIN_FILENO);
  }
  if (options_.verbose) {
    outputs_.message(fmt::format("rank {} is pid {}", workers_[index].rank, message.pid));
  }
  if (options_.reports_bindings) {
    if (const auto report = bindings_.note(options_.job, index, message.pid)) {
      outputs_.message(*report);
    }
  }
  if (phase_ == Phase::kRunning) {
    phase_deadline_ = ends_.unreported().empty() ? Deadline::never() : Deadline::after(kEndAnswer);
    spawn_next();
  } else {
    // The guardian executes orders in sequence, so the order to end the ranks reached this rank as
    // well.
    workers_[index].ended_by_us = true;
  }
}

void WorkerGroup::on_message(const SpawnFailed& message) {
  awaits_spawn_ = false;
  if (message.is_of_cores) {
    const auto index = static_cast<std::size_t>(message.local_rank);
    if (!options_.job.binding.empty()) {
      // The user has not asked for binding, so the ranks run without.
      options_.job.cores.clear();
      options_.job.binding = "not bound: the kernel refused to bind them";
      --n_ordered_;
      spawn_next();
      return;
    }
    fail({kLauncherFailed,
          std::nullopt,
          describe_failed_binding(options_.job, index, message.error_number)});
    return;
  }
  const ProgramError error = exec_error(program_, message.error_number);
  fail({error.exit_code(), std::nullopt, error.what()});
}

void WorkerGroup::on_message(const Exited& message) {
  const auto index = static_cast<std::size_t>(message.local_rank);
  ends_.mark_reported(index);
  record_end(index, message.status);
  if (phase_ == Phase::kRunning && !awaits_spawn_ && ends_.unreported().empty()) {
    phase_deadline_ = Deadline::never();
  }
  const WorkerRecord& worker = workers_[index];
  if (worker.status != 0 && !worker.ended_by_us) {
    fail({exit_code(worker.status), index, ""});
  }
  if (all_ended()) {
    await_leftovers();
  }
}

void WorkerGroup::on_message(const Idle& /*message*/) {
  if (all_ended()) {
    left_nothing_ = true;
    phase_ = Phase::kOver;
  }
}

void WorkerGroup::on_message(const Stuck& message) {
  outputs_.message(fmt::format("SIGKILL does not end these processes:{}", pid_list(message.pids)));
  if (!cause_) {
    cause_ = Cause{kLauncherFailed,
                   std::nullopt,
                   "the ranks have ended, but not all processes that they started"};
  }
  phase_ = Phase::kOver;
}

// The kernel notifies the guardian at the same time, so the guardian's report must follow within
// kEndAnswer.
void WorkerGroup::on_unreported_end() {
  if (phase_ == Phase::kRunning && !awaits_spawn_) {
    phase_deadline_ = Deadline::after(kEndAnswer);
  }
}

bool WorkerGroup::all_ended() const {
  return !awaits_spawn_ && std::ranges::none_of(workers_, [](const WorkerRecord& worker) {
    return worker.state == WorkerRecord::State::kRunning;
  });
}

void WorkerGroup::record_end(std::size_t index, int status) {
  WorkerRecord& worker = workers_[index];
  worker.state = WorkerRecord::State::kEnded;
  worker.status = status;
  if (worker.given_up.empty()) {
    worker.lifetime = Clock::now() - started_[index];
  }
  worker.error = status == 0 ? "" : errors_[index].message();
  if (options_.verbose) {
    outputs_.message(fmt::format("rank {}: {}", worker.rank, describe_end(worker.status)));
  }
}

std::string WorkerGroup::describe_kill() const {
  return launch::describe_kill(kills_before_, count_memory_kills());
}

void WorkerGroup::mark_running_as_ended_by_us() {
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    workers_[i].ended_by_us |=
        workers_[i].state == WorkerRecord::State::kRunning && !ends_.is_unreported(i);
  }
}

void WorkerGroup::order(const Message& message) {
  if (phase_ == Phase::kOver) {
    return;  // The guardian has ended, or no rank is left.
  }
  guardian_.wake();
  guardian_.channel().send(message, false);
}

void WorkerGroup::ask_to_end(Phase phase, int signal_number) {
  mark_running_as_ended_by_us();
  phase_ = phase;
  phase_deadline_ = grace_.begin(signal_number);
  order(Signal{signal_number});
}

void WorkerGroup::terminate() {
  if (phase_ == Phase::kRunning || phase_ == Phase::kInterrupted) {
    ask_to_end(Phase::kTerminating, SIGTERM);
  }
}

// The guardian ends the processes that the ranks have left behind; Idle reports that no process is
// left.
void WorkerGroup::await_leftovers() {
  if (phase_ == Phase::kKilling || phase_ == Phase::kOver) {
    return;
  }
  terminate();
  phase_deadline_ = earlier(phase_deadline_, Deadline::after(kLeftoversEnd));
  grace_.end();
}

std::vector<int> WorkerGroup::running_ranks() const {
  std::vector<int> ranks;
  for (const WorkerRecord& worker : workers_) {
    if (worker.state == WorkerRecord::State::kRunning) {
      ranks.push_back(worker.rank);
    }
  }
  return ranks;
}

void WorkerGroup::kill() {
  grace_.end();
  phase_ = Phase::kKilling;
  phase_deadline_ = Deadline::after(kKillTaken);
  kill_deadline_ = Deadline::after(kKillAnswer);
  order(KillAll{});
}

Deadline WorkerGroup::deadline() const {
  return stalls_ && phase_ == Phase::kRunning ? earlier(phase_deadline_, stalls_->next_look())
                                              : earlier(phase_deadline_, grace_.notice_deadline());
}

void WorkerGroup::on_deadline() {
  if (stalls_ && phase_ == Phase::kRunning && stalls_->next_look().has_passed()) {
    stalls_->look(Clock::now());
  }
  if (grace_.notice_deadline().has_passed()) {
    const int next_signal = phase_ == Phase::kInterrupted ? SIGTERM : SIGKILL;
    outputs_.message(grace_.take_notice(running_ranks(), next_signal));
  }
  if (!phase_deadline_.has_passed()) {
    return;
  }
  phase_deadline_ = Deadline::never();
  switch (phase_) {
    case Phase::kRunning:
      if (!awaits_spawn_) {
        give_guardian_up();
        break;
      }
      cause_ = Cause{kLauncherFailed,
                     std::nullopt,
                     fmt::format("the guardian process (pid {}) did not start a rank in {} s",
                                 guardian_.pid(),
                                 kSpawnAnswer.count())};
      awaits_spawn_ = false;
      kill();
      break;
    case Phase::kInterrupted:
      if (guardian_.channel().is_drained()) {
        terminate();
      } else {
        kill();
      }
      break;
    case Phase::kTerminating:
      outputs_.message(grace_.describe_expiry(running_ranks()));
      kill();
      break;
    case Phase::kKilling:
      if (guardian_.channel().is_drained() && !kill_deadline_.has_passed()) {
        phase_deadline_ = kill_deadline_;
      } else {
        give_guardian_up();
      }
      break;
    case Phase::kOver:
      break;
  }
}

// The ranks end with the guardian. The processes that they leave behind become children of this
// process.
void WorkerGroup::give_guardian_up() {
  outputs_.message(
      fmt::format("the guardian process (pid {}) does not answer; it is killed, and "
                  "all ranks with it",
                  guardian_.pid()));
  mark_running_as_ended_by_us();
  guardian_.kill();
  phase_ = Phase::kOver;
}

void WorkerGroup::on_reaped(pid_t pid, int status) {
  const auto worker = std::ranges::find_if(workers_, [pid](const WorkerRecord& record) {
    return record.pid == pid && record.state == WorkerRecord::State::kRunning;
  });
  if (worker != workers_.end()) {
    record_end(static_cast<std::size_t>(worker - workers_.begin()), status);
  }
}

// The first rank that failed is the cause, even without a report of the guardian.
void WorkerGroup::on_all_reaped() {
  for (const std::size_t index : ends_.unreported()) {
    if (!cause_ && workers_[index].status != 0) {
      cause_ = Cause{exit_code(workers_[index].status), index, ""};
    }
  }
  if (!cause_ && !ends_.unreported().empty()) {
    cause_ = Cause{kLauncherFailed, std::nullopt, "not all ranks were done"};
  }
}

}  // namespace unisono::launch
