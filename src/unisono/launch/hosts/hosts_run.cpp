#include "unisono/launch/hosts/hosts_run.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/epoll.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <system_error>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/launch/grace_period.h"
#include "unisono/launch/output/lines.h"

namespace unisono::launch::hosts {
namespace {

// Time from the last message of a host, or the loss of its connection, until the local process that
// leads to the host is killed.
constexpr std::chrono::seconds kGoodbye{3};
// Time in addition to the ranks' grace period, for the launchers' own work and for messages in both
// directions.
constexpr std::chrono::seconds kBeyondGrace{20};
// Delay before a lost launcher is started again. Remains of the lost launcher may keep its place in
// the job until the other nodes detect the loss.
constexpr std::chrono::seconds kBetweenStarts{3};
constexpr std::size_t kMaxBacklogBytes = 1 << 20;

}  // namespace

HostsRun::HostsRun(const HostsRequest& request)
    : request_(request),
      signals_({SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD}, {SIGPIPE}),
      sinks_(standard_sinks(loop_, [this](const std::string& what, int error_number) {
        fail({kLauncherFailed,
              std::nullopt,
              fmt::format("cannot write to {}: {} (errno {}); all ranks were ended",
                          what,
                          std::generic_category().message(error_number),
                          error_number)});
      })) {
  loop_.add(signals_.fd(), EPOLLIN, [this](std::uint32_t /*events*/) { on_signal(); });
}

void HostsRun::start(const Program& program, Begin begin, bool is_remote) {
  begin.out_has_colour = sinks_.out->has_colour();
  begin.err_has_colour = sinks_.err->has_colour();
  members_.push_back({.program = program, .begin = std::move(begin), .is_remote = is_remote});
  connect(members_.back());
}

void HostsRun::connect(Member& member) {
  const std::string name = member.begin.label;
  auto host = std::make_unique<RemoteHost>(
      loop_,
      member.begin,
      RemoteHost::Events{
          .on_output = [this](const Output& output) { on_output(output); },
          .on_line = [this, name](const std::string& line) { say(name + ": " + line); }});
  // A remote shell may ask the terminal for a password, so the shell stays in this process group. A
  // signal to the group must not end the shell, because the host would be lost: the shell has these
  // signals blocked, and this launcher forwards them to the hosts.
  sigset_t mask = signals_.original_mask();
  if (member.is_remote) {
    for (const int signal_number : {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) {
      sigaddset(&mask, signal_number);
    }
  }
  host->start(member.program, mask, !member.is_remote);
  host->pause(is_paused_);
  member.host = std::move(host);
  member.ready_by = Deadline::after(request_.start_timeout);
  member.gone_by = Deadline::never();
}

int HostsRun::finish() {
  while (!is_over()) {
    loop_.run_once(deadline());
    for (Member& member : members_) {
      look(member);
    }
    throttle();
  }
  flush();
  const std::optional<Cause>& cause = loss_ ? loss_ : cause_;
  if (cause && !cause->message.empty()) {
    say(cause->message);
    flush();
  }
  loop_.remove(signals_.fd());
  return cause ? cause->exit_code : 0;
}

void HostsRun::on_signal() {
  while (const std::optional<CaughtSignal> signal = signals_.next()) {
    const bool is_to_end = signal->number != SIGUSR1 && signal->number != SIGUSR2;
    if (signal->number == SIGCHLD) {
      for (Member& member : members_) {
        member.host->reap();
      }
      continue;
    }
    if (is_flushing_ && is_to_end) {
      flushed_by_ = earlier(flushed_by_, output_deadline(*signal, request_.grace));
    }
    is_told_to_end_ = is_told_to_end_ || is_to_end;
    if (is_to_end && !cause_) {
      cause_ = signal_cause(signal->number);
      all_gone_by_ = end_deadline();
    }
    for (Member& member : members_) {
      member.host->send(Signal{signal->number, signal->is_from_terminal});
      member.again_at = is_to_end ? Deadline::never() : member.again_at;
    }
  }
}

void HostsRun::on_output(const Output& output) {
  // stdout and stderr may be the same terminal or file, so text that arrived first is written
  // first.
  (output.is_err ? sinks_.out : sinks_.err)->flush();
  (output.is_err ? sinks_.err : sinks_.out)->append(output.text);
}

void HostsRun::look(Member& member) {
  RemoteHost& host = *member.host;
  if (!member.again_at.is_never()) {
    start_again(member);
    return;
  }
  const std::optional<Ended>& ended = host.ended();
  const bool has_failed = ended ? ended->exit_code != 0 : host.is_over() && !member.is_given_up;
  if (has_failed && may_come_back(member)) {
    if (host.is_over()) {
      start_later(member);
      return;
    }
  } else if (has_failed && ended) {
    fail({ended->exit_code, std::nullopt, ended->report});
  } else if (has_failed) {
    lose(member, host.describe_loss());
  }
  if (host.is_over()) {
    return;
  }
  if ((host.ended() || host.has_lost_link()) && member.gone_by.is_never()) {
    member.gone_by = Deadline::after(kGoodbye);
  }
  if (member.gone_by.has_passed()) {
    host.kill();
  } else if (!host.is_ready() && member.ready_by.has_passed()) {
    lose(member, host.describe_loss());
    host.kill();
  } else if (all_gone_by_.has_passed()) {
    give_up(member);
  }
}

// A restarted launcher may fail again until `back_by`: the machine may still be booting, and the
// place in the job may not be free yet. Such a failure does not count as another restart.
bool HostsRun::may_come_back(const Member& member) const {
  const auto is_of_another_that_ended = [&member](const Member& other) {
    return &other != &member && other.host->ended();
  };
  if (cause_ || &member == &members_.front() ||
      std::ranges::any_of(members_, is_of_another_that_ended)) {
    return false;
  }
  if (!member.back_by.is_never() && !member.back_by.has_passed()) {
    return true;
  }
  return !member.host->ended() && member.host->is_ready() && n_losses_ < request_.max_restarts;
}

void HostsRun::start_later(Member& member) {
  const std::optional<Ended>& ended = member.host->ended();
  say((ended ? ended->report : member.host->describe_loss()) + "\nit is started again");
  if (member.back_by.is_never() || member.back_by.has_passed()) {
    ++n_losses_;
    member.back_by = Deadline::after(request_.start_timeout);
  }
  member.again_at = Deadline::after(kBetweenStarts);
}

void HostsRun::start_again(Member& member) {
  try {
    if (!may_come_back(member)) {
      member.again_at = Deadline::never();
      lose(member, member.host->describe_loss());
    } else if (member.again_at.has_passed()) {
      member.again_at = Deadline::never();
      connect(member);
    }
  } catch (const Error& error) {
    lose(member, member.begin.label + ": " + error.what());
  }
}

// Ranks that an interrupt does not end get the grace period twice, because SIGTERM follows SIGINT.
Deadline HostsRun::end_deadline() const {
  return Deadline::after(2 * request_.grace + kBeyondGrace);
}

void HostsRun::lose(Member& member, const std::string& why) {
  member.is_given_up = true;
  if (loss_ || is_told_to_end_) {
    return;
  }
  loss_ = Cause{member.host->loss_code(), std::nullopt, why};
  fail({kLauncherFailed, std::nullopt, member.host->name() + " is lost"});
}

void HostsRun::fail(Cause cause) {
  if (cause_) {
    return;
  }
  cause_ = std::move(cause);
  all_gone_by_ = end_deadline();
  const std::string why = loss_ ? loss_->message : cause_->message;
  for (Member& member : members_) {
    member.host->send(Stop{why});
    member.is_given_up = member.is_given_up || !member.again_at.is_never();
    member.again_at = Deadline::never();
  }
}

void HostsRun::give_up(Member& member) {
  member.is_given_up = true;
  say(fmt::format("{}: its launcher has not ended in time; look there for processes of this job",
                  member.host->name()));
  member.host->kill();
}

// Pauses all hosts while the reader of the output is too slow. The ranks then wait for the reader,
// as they would with a direct pipe.
void HostsRun::throttle() {
  sinks_.out->flush();
  sinks_.err->flush();
  const std::size_t backlog = std::max(sinks_.out->backlog(), sinks_.err->backlog());
  const bool pauses = backlog > (is_paused_ ? kMaxBacklogBytes / 2 : kMaxBacklogBytes);
  if (pauses != is_paused_) {
    is_paused_ = pauses;
    for (Member& member : members_) {
      member.host->pause(pauses);
    }
  }
}

// Waits for a slow reader (a pager) without a limit, unless a signal asks the launcher to end: then
// for the grace period at most.
void HostsRun::flush() {
  if (is_told_to_end_ && !is_flushing_) {
    flushed_by_ = Deadline::after(request_.grace);
  }
  is_flushing_ = true;
  sinks_.out->flush();
  sinks_.err->flush();
  while (sinks_.out->backlog() + sinks_.err->backlog() > 0 && !flushed_by_.has_passed()) {
    loop_.run_once(flushed_by_);
  }
}

void HostsRun::say(const std::string& text) {
  sinks_.out->flush();
  sinks_.err->append(format_message({.is_json = request_.is_json}, text));
}

bool HostsRun::is_over() const {
  return std::ranges::all_of(members_, [](const Member& member) {
    return member.host->is_over() && member.again_at.is_never();
  });
}

Deadline HostsRun::deadline() const {
  Deadline next = all_gone_by_;
  for (const Member& member : members_) {
    next = earlier(next, member.again_at);
    if (!member.host->is_over()) {
      next = earlier(next, member.gone_by);
      next = member.host->is_ready() ? next : earlier(next, member.ready_by);
    }
  }
  return next;
}

}  // namespace unisono::launch::hosts
