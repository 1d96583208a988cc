#include "unisono/launch/agent.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/epoll.h>  // IWYU pragma: keep
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <system_error>
#include <utility>

#include "unisono/launch/grace_period.h"
#include "unisono/launch/output/lines.h"
#include "unisono/launch/output/sink.h"
#include "unisono/launch/process/channel.h"

namespace unisono::launch {
namespace {

LineFormat line_format(const RunOptions& options, const hosts::Uplink* uplink) {
  return {.is_json = options.is_json,
          .host = uplink == nullptr ? "" : uplink->label(),
          .prefix_template = options.prefix_template,
          .role = options.role};
}

}  // namespace

Agent::Agent(net::EventLoop& loop,
             const RunOptions& options,
             const Program& program,
             GuardianLink& guardian,
             Generations& generations,
             hosts::Uplink* uplink)
    : options_(options),
      program_(program),
      guardian_(guardian),
      generations_(generations),
      uplink_(uplink),
      signals_({SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH, SIGCHLD}, {SIGPIPE}),
      loop_(loop),
      outputs_(loop_,
               {.n_workers = options.n_workers,
                .prefix = options.prefix,
                .collapses = options.collapses,
                .format = line_format(options, uplink),
                .log_dir = options.log_dir,
                .targets = {.has_files = !options.log_dir.empty(),
                            .redirects = options.redirects,
                            .tee = options.tee,
                            .shown = options.shown_ranks}},
               uplink == nullptr ? standard_sinks(loop_, output_error()) : uplink->sinks(),
               output_error()),
      waiting_{.run_once = [this](Deadline until) { return run_once(until); },
               .say = [this](std::string_view text) { outputs_.message(text); }} {
  raise_descriptor_limit();
}

WorkerOutput::OnError Agent::output_error() {
  return [this](const std::string& what, int error_number) { on_output_error(what, error_number); };
}

int Agent::run() {
  watch_signals();
  watch_guardian();
  while (const std::optional<JobLayout> job = generations_.next(waiting_)) {
    const GroupEnd end = run_generation(*job);
    generations_.take_end(end);
    last_ = end;
  }
  end_guardian();
  flush_outputs();
  const Outcome end = outcome();
  if (uplink_ != nullptr) {
    uplink_->detach();
    uplink_->end(end.exit_code, end.report);
  } else if (!end.report.empty()) {
    outputs_.message(end.report);
    flush_outputs();
  }
  loop_.remove(signals_.fd());
  return end.exit_code;
}

void Agent::watch_signals() {
  loop_.add(signals_.fd(), EPOLLIN, [this](std::uint32_t /*events*/) {
    while (const std::optional<CaughtSignal> signal = signals_.next()) {
      on_signal(*signal);
    }
  });
  if (uplink_ != nullptr) {
    uplink_->attach(
        {.on_signal = [this](const CaughtSignal& signal) { on_signal(signal); },
         .on_stop =
             [this](const std::string& why) { fail({kLauncherFailed, std::nullopt, why}); }});
  }
}

void Agent::watch_guardian() {
  has_guardian_ = true;
  loop_.add(guardian_.channel().fd(), EPOLLIN, [this](std::uint32_t /*events*/) { on_channel(); });
}

bool Agent::run_once(Deadline until) {
  outputs_.flush();
  loop_.run_once(earlier(until, outputs_.deadline()));
  return !is_ending_;
}

GroupEnd Agent::run_generation(const JobLayout& job) {
  if (!has_guardian_) {
    guardian_.start();
    watch_guardian();
  }
  outputs_.name_ranks(job.first_rank);
  group_ = std::make_unique<WorkerGroup>(
      loop_,
      guardian_,
      outputs_,
      program_,
      WorkerGroupOptions{.job = job,
                         .grace = options_.grace,
                         .verbose = options_.verbose,
                         .reports_bindings = options_.reports_bindings});
  if (options_.verbose) {
    outputs_.message(
        fmt::format("{} of {} ranks of {}, MASTER_ADDR={} MASTER_PORT={}{}",
                    job.local_world_size,
                    job.world_size,
                    program_.path,
                    job.master_addr,
                    job.master_port,
                    job.omp_threads ? fmt::format(" OMP_NUM_THREADS={}", *job.omp_threads) : ""));
  }
  group_->start();
  while (!group_->is_over()) {
    (void)run_once(group_->deadline());
    if (group_->deadline().has_passed()) {
      group_->on_deadline();
    }
    generations_.watch(*group_, waiting_);
  }
  if (!group_->left_nothing()) {
    end_guardian();
  }
  outputs_.drain();
  GroupEnd end = group_end(job);
  group_.reset();
  return end;
}

GroupEnd Agent::group_end(const JobLayout& job) const {
  GroupEnd end{.cause = group_->cause(),
               .failure = {},
               .report = {},
               .lifetime = group_->lifetime(),
               .may_go_on = !is_ending_ && !has_left_processes_};
  if (end.cause && end.cause->failed_worker) {
    const std::size_t failed = *end.cause->failed_worker;
    end.failure = describe_failed_rank(group_->workers()[failed], job.host);
    end.report = failure_report(
        group_->workers(),
        failed,
        {.last_lines =
             [this](std::size_t worker) { return outputs_.last_lines(static_cast<int>(worker)); },
         .host = job.host,
         .kill_note = group_->describe_kill()});
  } else if (end.cause) {
    end.report = end.cause->message;
    end.failure = end.cause->is_lost_guardian ? end.report : "";
  }
  return end;
}

void Agent::on_signal(const CaughtSignal& signal) {
  switch (signal.number) {
    case SIGCHLD:
      guardian_.wake();  // The guardian may have been stopped. The channel reports its end.
      break;
    case SIGWINCH:
      outputs_.resize();
      break;
    case SIGUSR1:
    case SIGUSR2:
      if (group_) {
        group_->pass_on(signal.number);
      }
      break;
    default:
      on_stop_signal(signal);
  }
}

void Agent::on_stop_signal(const CaughtSignal& signal) {
  if (is_flushing_) {
    flushed_by_ = earlier(flushed_by_, output_deadline(signal, options_.grace));
  } else if (group_) {
    is_ending_ = true;
    group_->stop(signal);
  } else {
    fail(signal_cause(signal.number));
  }
}

void Agent::on_channel() {
  Channel& channel = guardian_.channel();
  while (const std::optional<Received> received = channel.receive()) {
    if (group_) {
      group_->handle(received->message);
    }
  }
  if (!channel.is_closed()) {
    return;
  }
  if (group_) {
    group_->on_guardian_gone();
  } else {
    end_guardian();  // The next generation gets another guardian.
  }
}

void Agent::on_output_error(const std::string& what, int error_number) {
  fail({kLauncherFailed,
        std::nullopt,
        fmt::format("cannot write to {}: {} (errno {}); all ranks were ended",
                    what,
                    std::generic_category().message(error_number),
                    error_number)});
}

void Agent::fail(Cause cause) {
  is_ending_ = true;
  if (group_) {
    group_->fail(std::move(cause));
  } else if (!cause_) {
    cause_ = std::move(cause);
  }
}

void Agent::end_guardian() {
  if (!has_guardian_) {
    return;
  }
  has_guardian_ = false;
  loop_.remove(guardian_.channel().fd());
  const auto left = guardian_.end([this](pid_t pid, int status) {
    if (group_) {
      group_->on_reaped(pid, status);
    }
  });
  if (group_) {
    group_->on_all_reaped();
  }
  has_left_processes_ = !left.empty();
  if (has_left_processes_) {
    outputs_.message("these processes could not be ended:" + pid_list(left));
  }
}

// Returns the job's outcome if the generations have one, unless that outcome is a success and this
// node failed while no ranks ran.
Outcome Agent::outcome() const {
  const std::optional<Outcome> end = generations_.outcome();
  if (end && (end->exit_code != 0 || !cause_)) {
    return *end;
  }
  const std::optional<Cause>& cause = cause_ || !last_ ? cause_ : last_->cause;
  return Outcome{cause ? cause->exit_code : 0,
                 cause_ || !last_ ? (cause_ ? cause_->message : "") : last_->report};
}

// Waits for a slow reader (a pager) without a limit, unless a signal asks the launcher to end: then
// for the grace period at most.
void Agent::flush_outputs() {
  const bool is_told_to_end = is_ending_ && outcome().exit_code > kSignalBase;
  if (is_told_to_end && !is_flushing_) {
    flushed_by_ = Deadline::after(options_.grace);
  }
  is_flushing_ = true;
  outputs_.flush();
  while (!outputs_.is_flushed() && !flushed_by_.has_passed()) {
    loop_.run_once(flushed_by_);
  }
}

}  // namespace unisono::launch
