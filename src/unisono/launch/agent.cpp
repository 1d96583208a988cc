#include "unisono/launch/agent.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/epoll.h>  // IWYU pragma: keep
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/launch/cause.h"
#include "unisono/launch/descriptor_limit.h"
#include "unisono/launch/environment.h"
#include "unisono/launch/output/outputs.h"
#include "unisono/launch/process/channel.h"
#include "unisono/launch/process/signals.h"
#include "unisono/launch/program.h"
#include "unisono/launch/report.h"
#include "unisono/launch/run.h"
#include "unisono/launch/worker_group.h"
#include "unisono/store/tcp_server.h"

namespace unisono::launch {

Agent::Agent(const RunOptions& options,
             const Program& program,
             const JobLayout& job,
             const store::TcpServerOptions& store)
    : options_(options),
      program_(program),
      job_(job),
      signals_({SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH, SIGCHLD}, {SIGPIPE}),
      store_options_(store),
      store_(std::make_unique<store::TcpStoreServer>(loop_, store)),
      outputs_(loop_,
               {.first_rank = job.first_rank,
                .n_workers = options.n_workers,
                .prefix = options.prefix,
                .log_dir = options.log_dir,
                .targets = {.has_files = !options.log_dir.empty(),
                            .redirects = options.redirects,
                            .tee = options.tee,
                            .shown = options.shown_ranks}},
               [this](const std::string& what, int error_number) {
                 on_output_error(what, error_number);
               }),
      guardian_(program, signals_.original_mask()),
      restarts_(options.max_restarts) {
  raise_descriptor_limit();
}

int Agent::run() {
  loop_.add(signals_.fd(), EPOLLIN, [this](std::uint32_t /*events*/) { on_signal(); });
  loop_.add(guardian_.channel().fd(), EPOLLIN, [this](std::uint32_t /*events*/) { on_channel(); });
  do {
    run_generation();
  } while (prepare_restart());
  finish();
  return report();
}

void Agent::run_generation() {
  job_.master_port = store_->address().port();
  job_.restart_count = restarts_.n_used();
  group_ = std::make_unique<WorkerGroup>(
      loop_,
      guardian_,
      outputs_,
      program_,
      WorkerGroupOptions{.job = job_, .grace = options_.grace, .verbose = options_.verbose});
  if (options_.verbose) {
    outputs_.message(
        fmt::format("{} ranks of {}, MASTER_ADDR={} MASTER_PORT={}{}",
                    job_.local_world_size,
                    program_.path,
                    job_.master_addr,
                    job_.master_port,
                    job_.omp_threads ? fmt::format(" OMP_NUM_THREADS={}", *job_.omp_threads) : ""));
  }
  group_->start();
  while (!group_->is_over()) {
    outputs_.flush();
    loop_.run_once(group_->deadline());
    if (group_->deadline().has_passed()) {
      group_->on_deadline();
    }
  }
}

// Returns false where no other generation follows. The next one gets an empty store, at another
// port unless the user chose one: a rank of the last generation, were there one, would find nobody.
bool Agent::prepare_restart() {
  if (!group_->left_nothing()) {
    return false;
  }
  outputs_.drain();
  const std::optional<Cause> ended = group_->cause();
  const std::optional<std::size_t> failed =
      ended && may_restart_ ? ended->failed_worker : std::nullopt;
  const std::optional<std::chrono::milliseconds> delay =
      restarts_.restart_after({.rank_failed = failed.has_value(), .lifetime = group_->lifetime()});
  if (!failed || !delay) {
    return false;
  }
  failed_.push_back(group_->workers()[*failed]);
  outputs_.message(fmt::format("{}\nrestart {} of {}",
                               describe_failure(*failed),
                               restarts_.n_used(),
                               restarts_.max_restarts()));
  group_.reset();
  pause(*delay);
  if (!may_restart_) {
    return false;
  }
  store_.reset();
  try {
    store_ = std::make_unique<store::TcpStoreServer>(loop_, store_options_);
  } catch (const Error& error) {
    cause_ = Cause{kLauncherFailed, std::nullopt, error.what()};
    return false;
  }
  return true;
}

void Agent::pause(std::chrono::milliseconds delay) {
  const Deadline end = Deadline::after(delay);
  while (may_restart_ && !end.has_passed()) {
    outputs_.flush();
    loop_.run_once(end);
  }
}

void Agent::on_signal() {
  while (const std::optional<int> signal_number = signals_.next()) {
    switch (*signal_number) {
      case SIGCHLD:
        guardian_.wake();  // It may have been stopped. The channel tells of its end.
        break;
      case SIGWINCH:
        outputs_.resize();
        break;
      case SIGUSR1:
      case SIGUSR2:
        if (group_) {
          group_->pass_on(*signal_number);
        }
        break;
      default:
        on_stop_signal(*signal_number);
    }
  }
}

void Agent::on_stop_signal(int signal_number) {
  may_restart_ = false;
  if (is_flushing_) {
    abandon_output_ = true;
  } else if (group_) {
    group_->stop(signal_number);
  } else if (!cause_) {
    cause_ = signal_cause(signal_number);
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
  may_restart_ = false;
  if (group_) {
    group_->on_guardian_gone();
  } else if (!cause_) {
    cause_ = lost_guardian_cause(guardian_.pid());
  }
}

void Agent::on_output_error(const std::string& what, int error_number) {
  may_restart_ = false;
  Cause cause{kLauncherFailed,
              std::nullopt,
              fmt::format("cannot write to {}: {} (errno {}); all ranks were ended",
                          what,
                          std::generic_category().message(error_number),
                          error_number)};
  if (group_) {
    group_->fail(std::move(cause));
  } else if (!cause_) {
    cause_ = std::move(cause);
  }
}

void Agent::finish() {
  loop_.remove(guardian_.channel().fd());
  const auto left = guardian_.end([this](pid_t pid, int status) {
    if (group_) {
      group_->on_reaped(pid, status);
    }
  });
  if (group_) {
    group_->on_all_reaped();
  }
  if (!left.empty()) {
    outputs_.message("these processes could not be ended:" + pid_list(left));
  }
  outputs_.drain();
}

std::optional<Cause> Agent::cause() const {
  return group_ ? group_->cause() : cause_;
}

// A reader that takes its time (a pager) is waited for, unless somebody wants us to end.
void Agent::flush_outputs() {
  const std::optional<Cause> ended = cause();
  const Deadline deadline = ended && ended->exit_code > kSignalBase && !ended->failed_worker
                                ? Deadline::after(options_.grace)
                                : Deadline::never();
  is_flushing_ = true;
  outputs_.flush();
  while (!outputs_.is_flushed() && !abandon_output_ && !deadline.has_passed()) {
    loop_.run_once(deadline);
  }
}

std::string Agent::describe_failure(std::size_t failed_worker) const {
  return failure_report(
      group_->workers(), failed_worker, outputs_.last_lines(static_cast<int>(failed_worker)));
}

int Agent::report() {
  flush_outputs();
  if (!failed_.empty()) {
    outputs_.message(restart_report(failed_, restarts_.max_restarts()));
  }
  const std::optional<Cause> ended = cause();
  if (ended && ended->failed_worker) {
    outputs_.message(describe_failure(*ended->failed_worker));
  } else if (ended) {
    outputs_.message(ended->message);
  }
  flush_outputs();
  return ended ? ended->exit_code : 0;
}

}  // namespace unisono::launch
