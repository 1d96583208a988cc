#include "unisono/launch/agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/epoll.h>  // IWYU pragma: keep
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/launch/channel.h"
#include "unisono/launch/descriptor_limit.h"
#include "unisono/launch/environment.h"
#include "unisono/launch/outputs.h"
#include "unisono/launch/program.h"
#include "unisono/launch/protocol.h"
#include "unisono/launch/report.h"
#include "unisono/launch/run.h"
#include "unisono/launch/signals.h"

namespace unisono::launch {
namespace {

constexpr int kLauncherFailed = 1;
// The guardian gives up after 10 and 30 s, and then says so.
constexpr std::chrono::seconds kKillAnswer{12};
constexpr std::chrono::seconds kSpawnAnswer{40};

// Only rank 0 may read our stdin, and in the background not even it: reading would take the
// terminal's input from the shell.
bool may_pass_stdin(int node_rank) {
  const bool in_background =
      ::isatty(STDIN_FILENO) == 1 && ::tcgetpgrp(STDIN_FILENO) != ::getpgrp();
  return node_rank == 0 && !in_background;
}

std::string pid_list(const auto& pids) {
  std::string text;
  for (const auto pid : pids) {
    text += fmt::format(" {}", pid);
  }
  return text;
}

}  // namespace

Agent::Agent(const RunOptions& options,
             const Program& program,
             const JobLayout& job,
             const store::TcpServerOptions& store)
    : options_(options),
      program_(program),
      job_(job),
      signals_({SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH, SIGCHLD}, {SIGPIPE}),
      store_(loop_, store),
      outputs_(loop_,
               {.first_rank = job.first_rank,
                .n_workers = options.n_workers,
                .prefix = options.prefix,
                .log_dir = options.log_dir},
               [this](const std::string& what, int error_number) {
                 on_output_error(what, error_number);
               }),
      guardian_(program, signals_.original_mask()),
      null_(::open("/dev/null", O_RDWR | O_CLOEXEC)),
      workers_(static_cast<std::size_t>(options.n_workers)),
      started_(workers_.size()) {
  raise_descriptor_limit();
  job_.master_port = store_.address().port();
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    workers_[i].rank = job_.first_rank + static_cast<int>(i);
  }
}

int Agent::run() {
  loop_.add(signals_.fd(), EPOLLIN, [this](std::uint32_t /*events*/) { on_signal(); });
  loop_.add(guardian_.channel().fd(), EPOLLIN, [this](std::uint32_t /*events*/) { on_channel(); });
  if (options_.verbose) {
    outputs_.message(
        fmt::format("{} ranks of {}, MASTER_ADDR={} MASTER_PORT={}{}",
                    job_.local_world_size,
                    program_.path,
                    job_.master_addr,
                    job_.master_port,
                    job_.omp_threads ? fmt::format(" OMP_NUM_THREADS={}", *job_.omp_threads) : ""));
  }
  spawn_next();
  while (phase_ != Phase::kOver) {
    outputs_.flush();
    loop_.run_once(phase_deadline_);
    if (phase_deadline_.has_passed()) {
      escalate();
    }
  }
  finish();
  return report();
}

// One after the other: a program that can't be executed then fails once, not once per rank.
void Agent::spawn_next() {
  if (n_ordered_ == workers_.size() || phase_ != Phase::kRunning) {
    return;
  }
  const int local_rank = static_cast<int>(n_ordered_++);
  Outputs::Ends ends;
  try {
    ends = outputs_.open(local_rank);
  } catch (const Error& error) {
    fail({kLauncherFailed, std::nullopt, error.what()});
    return;
  }
  const bool gets_stdin = local_rank == 0 && may_pass_stdin(job_.node_rank);
  awaits_spawn_ = true;
  phase_deadline_ = Deadline::after(kSpawnAnswer);
  const bool sent = guardian_.channel().send(
      Spawn{local_rank, worker_environment(job_, local_rank)},
      false,
      {gets_stdin ? STDIN_FILENO : null_.get(), ends.out.get(), ends.err.get()});
  if (!sent) {
    fail({kLauncherFailed, std::nullopt, "the guardian process does not take orders"});
  }
}

void Agent::fail(Cause cause) {
  if (!cause_) {
    cause_ = std::move(cause);
  }
  terminate();
}

void Agent::on_signal() {
  while (const std::optional<int> signal_number = signals_.next()) {
    switch (*signal_number) {
      case SIGCHLD:
        break;  // The channel tells of the guardian's end.
      case SIGWINCH:
        outputs_.resize();
        break;
      case SIGUSR1:
      case SIGUSR2:
        order(Signal{*signal_number});
        break;
      default:
        on_stop_signal(*signal_number);
    }
  }
}

void Agent::on_stop_signal(int signal_number) {
  if (is_flushing_) {
    abandon_output_ = true;
    return;
  }
  const bool is_first = phase_ == Phase::kRunning;
  if (!cause_) {
    cause_ = Cause{kSignalBase + signal_number,
                   std::nullopt,
                   fmt::format("ended by {}", signal_name(signal_number))};
  }
  if (is_first && signal_number == SIGTERM) {
    terminate();
  } else if (is_first) {
    interrupt(signal_number);
  } else if (phase_ != Phase::kKilling) {
    kill();
  }
}

void Agent::on_channel() {
  Channel& channel = guardian_.channel();
  while (const std::optional<Received> received = channel.receive()) {
    std::visit(
        [this](const auto& message) {
          if constexpr (requires { this->on_message(message); }) {
            on_message(message);
          }
        },
        received->message);
  }
  if (!channel.is_closed()) {
    return;
  }
  if (phase_ != Phase::kOver) {
    mark_running_as_ended_by_us();
    if (!cause_) {
      cause_ =
          Cause{kLauncherFailed,
                std::nullopt,
                fmt::format("the guardian process (pid {}) was killed, so all ranks were ended",
                            guardian_.pid())};
    }
    phase_ = Phase::kOver;
  }
}

void Agent::on_message(const Started& message) {
  const auto index = static_cast<std::size_t>(message.local_rank);
  workers_[index].pid = message.pid;
  workers_[index].state = WorkerRecord::State::kRunning;
  started_[index] = Clock::now();
  awaits_spawn_ = false;
  if (message.local_rank == 0) {
    // If rank 0 closes its stdin, whoever writes to it has to notice.
    ::dup2(null_.get(), STDIN_FILENO);
  }
  if (options_.verbose) {
    outputs_.message(fmt::format("rank {} is pid {}", workers_[index].rank, message.pid));
  }
  if (phase_ == Phase::kRunning) {
    phase_deadline_ = Deadline::never();
    spawn_next();
  } else if (phase_ != Phase::kKilling) {
    // It was not there yet when the others were told.
    workers_[index].ended_by_us = true;
    order(Signal{SIGTERM});
  }
}

void Agent::on_message(const SpawnFailed& message) {
  awaits_spawn_ = false;
  const ProgramError error = exec_error(program_, message.error_number);
  fail({error.exit_code(), std::nullopt, error.what()});
}

void Agent::on_message(const Exited& message) {
  const auto index = static_cast<std::size_t>(message.local_rank);
  WorkerRecord& worker = workers_[index];
  worker.state = WorkerRecord::State::kEnded;
  worker.status = message.status;
  worker.lifetime = Clock::now() - started_[index];
  if (options_.verbose) {
    outputs_.message(fmt::format("rank {}: {}", worker.rank, describe_end(worker.status)));
  }
  if (worker.status != 0 && !worker.ended_by_us) {
    fail({exit_code(worker.status), index, ""});
  } else if (all_ended()) {
    // What the ranks left behind is asked to end, too; Idle says that there is nothing.
    terminate();
  }
}

void Agent::on_message(const Idle& /*message*/) {
  if (all_ended()) {
    phase_ = Phase::kOver;
  }
}

void Agent::on_message(const Stuck& message) {
  outputs_.message("SIGKILL does not end these processes:" + pid_list(message.pids));
  if (!cause_) {
    cause_ = Cause{kLauncherFailed, std::nullopt, "the ranks are done, but not all they started"};
  }
  phase_ = Phase::kOver;
}

void Agent::on_output_error(const std::string& what, int error_number) {
  Cause cause{kLauncherFailed,
              std::nullopt,
              fmt::format("cannot write to {}: {} (errno {}); all ranks were ended",
                          what,
                          std::generic_category().message(error_number),
                          error_number)};
  if (phase_ == Phase::kOver) {
    if (!cause_) {
      cause_ = std::move(cause);
    }
  } else {
    fail(std::move(cause));
  }
}

bool Agent::all_ended() const {
  return !awaits_spawn_ && std::ranges::none_of(workers_, [](const WorkerRecord& worker) {
    return worker.state == WorkerRecord::State::kRunning;
  });
}

void Agent::mark_running_as_ended_by_us() {
  for (WorkerRecord& worker : workers_) {
    worker.ended_by_us |= worker.state == WorkerRecord::State::kRunning;
  }
}

void Agent::order(const Message& message) {
  if (phase_ == Phase::kOver) {
    return;  // There is no guardian any more.
  }
  // A guardian that was stopped would let us wait.
  ::kill(guardian_.pid(), SIGCONT);
  guardian_.channel().send(message, false);
}

void Agent::interrupt(int signal_number) {
  mark_running_as_ended_by_us();
  phase_ = Phase::kInterrupted;
  phase_deadline_ = Deadline::after(options_.grace);
  order(Signal{signal_number});
}

void Agent::terminate() {
  if (phase_ != Phase::kRunning && phase_ != Phase::kInterrupted) {
    return;
  }
  mark_running_as_ended_by_us();
  phase_ = Phase::kTerminating;
  phase_deadline_ = Deadline::after(options_.grace);
  order(Signal{SIGTERM});
}

void Agent::kill() {
  phase_ = Phase::kKilling;
  phase_deadline_ = Deadline::after(kKillAnswer);
  order(KillAll{});
}

// The deadline of the phase has passed.
void Agent::escalate() {
  phase_deadline_ = Deadline::never();
  switch (phase_) {
    case Phase::kRunning:
      cause_ = Cause{kLauncherFailed,
                     std::nullopt,
                     fmt::format("the guardian process (pid {}) did not start a rank in {} s",
                                 guardian_.pid(),
                                 kSpawnAnswer.count())};
      awaits_spawn_ = false;
      kill();
      break;
    case Phase::kInterrupted:
      terminate();
      break;
    case Phase::kTerminating:
      kill();
      break;
    case Phase::kKilling:
      outputs_.message(
          fmt::format("the guardian process (pid {}) does not answer", guardian_.pid()));
      phase_ = Phase::kOver;
      break;
    case Phase::kOver:
      break;
  }
}

void Agent::finish() {
  loop_.remove(guardian_.channel().fd());
  const auto left = guardian_.end();
  if (!left.empty()) {
    outputs_.message("these processes could not be ended:" + pid_list(left));
  }
  outputs_.drain();
}

// A reader that takes its time (a pager) is waited for, unless somebody wants us to end.
void Agent::flush_outputs() {
  const Deadline deadline = cause_ && cause_->exit_code > kSignalBase && !cause_->failed_worker
                                ? Deadline::after(options_.grace)
                                : Deadline::never();
  is_flushing_ = true;
  outputs_.flush();
  while (!outputs_.is_flushed() && !abandon_output_ && !deadline.has_passed()) {
    loop_.run_once(deadline);
  }
}

int Agent::report() {
  flush_outputs();
  if (!cause_) {
    return 0;
  }
  if (cause_->failed_worker) {
    const int local_rank = static_cast<int>(*cause_->failed_worker);
    outputs_.message(
        failure_report(workers_, *cause_->failed_worker, outputs_.last_lines(local_rank)));
  } else {
    outputs_.message(cause_->message);
  }
  flush_outputs();
  return cause_->exit_code;
}

}  // namespace unisono::launch
