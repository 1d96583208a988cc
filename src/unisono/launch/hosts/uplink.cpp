#include "unisono/launch/hosts/uplink.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <string_view>
#include <utility>
#include <variant>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/process.h"
#include "unisono/launch/hosts/run_on_hosts.h"
#include "unisono/launch/program.h"
#include "unisono/launch/report.h"

namespace unisono::launch::hosts {
namespace {

constexpr std::chrono::seconds kBeginTimeout{60};
constexpr std::chrono::seconds kEndTimeout{10};

Fd duplicate(int fd) {
  Fd copy(::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!copy.is_open()) {
    throw system_error("can't take stdin and stdout for the launcher that started this one", errno);
  }
  return copy;
}

void check_stdin() {
  struct stat status{};
  if (::fstat(STDIN_FILENO, &status) != 0 ||
      !(S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode))) {
    throw Error(ErrorCode::kInvalidArgument,
                "`unisono run --hosts` starts this on other machines, with orders on stdin");
  }
}

// Sends one of the two output streams to the user's launcher.
class UplinkSink final : public Sink {
 public:
  UplinkSink(HostLink& link, bool is_err, bool has_colour)
      : link_(link), is_err_(is_err), has_colour_(has_colour) {}

  void append(std::string_view text) override { text_ += text; }

  void flush() override {
    std::string_view rest = text_;
    while (!rest.empty()) {
      const std::string_view part = rest.substr(0, kMaxTextBytes);
      link_.send(Output{is_err_, std::string(part)});
      rest.remove_prefix(part.size());
    }
    text_.clear();
  }

  [[nodiscard]] std::size_t backlog() const override { return text_.size() + link_.backlog(); }

  [[nodiscard]] bool is_terminal() const override { return false; }

  [[nodiscard]] bool has_colour() const override { return has_colour_; }

 private:
  HostLink& link_;
  bool is_err_;
  bool has_colour_;
  std::string text_;
};

}  // namespace

Uplink::Uplink() {
  check_stdin();
  Fd in = duplicate(STDIN_FILENO);
  Fd out = duplicate(STDOUT_FILENO);
  const Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null.is_open() || ::dup2(null.get(), STDIN_FILENO) < 0 ||
      ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
    throw system_error("can't redirect stdin and stdout", errno);
  }
  link_ = std::make_unique<HostLink>(
      loop_,
      std::move(in),
      std::move(out),
      KeepAlive{},
      HostLink::Events{.on_message = [this](const Message& message) { take(message); },
                       .on_noise = [](std::string_view /*text*/) {},
                       .on_lost =
                           [this](const std::string& why) {
                             lost_ = why;
                             stop("the launcher that started this one is lost: " + why);
                           }});
  link_->send(Ready{std::string(release())});
}

const Begin& Uplink::begin() {
  const Deadline deadline = Deadline::after(kBeginTimeout);
  while (!has_begun_ && lost_.empty() && !deadline.has_passed()) {
    loop_.run_once(deadline);
  }
  if (!has_begun_) {
    throw Error(ErrorCode::kTimeout,
                fmt::format("`unisono run --hosts` starts this on other machines, and has not sent "
                            "the program to run ({})",
                            lost_.empty() ? "within 60 s" : lost_));
  }
  return begin_;
}

Sinks Uplink::sinks() {
  return {.out = std::make_unique<UplinkSink>(*link_, false, begin_.out_has_colour),
          .err = std::make_unique<UplinkSink>(*link_, true, begin_.err_has_colour)};
}

void Uplink::attach(Orders orders) {
  orders_ = std::move(orders);
  for (const Message& message : std::exchange(early_, {})) {
    take(message);
  }
}

void Uplink::take(const Message& message) {
  if (const auto* const begin = std::get_if<Begin>(&message)) {
    begin_ = *begin;
    has_begun_ = true;
  } else if (!orders_) {
    early_.push_back(message);
  } else if (const auto* const signal = std::get_if<Signal>(&message)) {
    orders_->on_signal(
        {.number = signal->signal_number, .is_from_terminal = signal->is_from_terminal});
  } else if (const auto* const order = std::get_if<Stop>(&message)) {
    orders_->on_stop(order->why);
  }
}

void Uplink::stop(const std::string& why) {
  take(Stop{why});
}

void Uplink::end(int exit_code, const std::string& report) {
  link_->send(Ended{exit_code, report});
  const Deadline deadline = Deadline::after(kEndTimeout);
  while (link_->backlog() > 0 && !link_->is_lost() && !deadline.has_passed()) {
    loop_.run_once(deadline);
  }
}

namespace {

constexpr int kWrongUsage = 2;

// Gives this process the signal mask, environment, secret and working directory of a process that
// the user starts on this host, independently of the shell that started it.
void take_up_environment(const Begin& begin) {
  sigset_t none;
  sigemptyset(&none);
  ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
  // NOLINTBEGIN(concurrency-mt-unsafe): this is the only thread.
  for (const std::string& variable : begin.variables) {
    const std::size_t equals = variable.find('=');
    ::setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
  }
  ::unsetenv("UNISONO_SECRET_FILE");
  ::setenv("UNISONO_SECRET", begin.secret.c_str(), 1);
  // NOLINTEND(concurrency-mt-unsafe)
  if (::chdir(begin.directory.c_str()) != 0) {
    throw system_error("there is no folder to run in, " + begin.directory, errno);
  }
}

int fail(Uplink& uplink, int exit_code, const Error& error) {
  uplink.end(exit_code, fmt::format("{}: {}", uplink.label(), error.what()));
  return exit_code;
}

}  // namespace

int serve_uplink(
    const std::function<int(Uplink& uplink, std::vector<std::string> arguments)>& run) {
  Uplink uplink;
  const Begin& begin = uplink.begin();
  try {
    take_up_environment(begin);
    return run(uplink, begin.arguments);
  } catch (const ProgramError& error) {
    return fail(uplink, error.exit_code(), error);
  } catch (const Error& error) {
    return fail(
        uplink, error.code() == ErrorCode::kInvalidArgument ? kWrongUsage : kLauncherFailed, error);
  }
}

}  // namespace unisono::launch::hosts
