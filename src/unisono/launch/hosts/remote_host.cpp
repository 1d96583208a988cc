#include "unisono/launch/hosts/remote_host.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/process.h"
#include "unisono/launch/environment.h"
#include "unisono/launch/process/spawn.h"
#include "unisono/launch/report.h"

namespace unisono::launch::hosts {
namespace {

constexpr std::chrono::seconds kExecTimeout{10};
constexpr std::size_t kMaxLineBytes = 4096;
// Exit code of ssh if there is no connection.
constexpr int kNoConnection = 255;
constexpr int kNoProgram = 127;

struct Pipe {
  Fd read_end;
  Fd write_end;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw system_error("cannot make a pipe to a remote shell", errno);
  }
  return {Fd(ends[0]), Fd(ends[1])};
}

}  // namespace

RemoteHost::RemoteHost(net::EventLoop& loop, Begin begin, Events events)
    : loop_(loop),
      begin_(std::move(begin)),
      events_(std::move(events)),
      error_lines_(kMaxLineBytes) {}

RemoteHost::~RemoteHost() {
  if (errors_.is_open()) {
    loop_.remove(errors_.get());
  }
}

void RemoteHost::start(const Program& program, const sigset_t& signal_mask, bool is_apart) {
  command_ = fmt::format("{}", fmt::join(program.argv, " "));
  Pipe in = make_pipe();
  Pipe out = make_pipe();
  Pipe err = make_pipe();
  std::vector<std::string> arguments = program.argv;
  std::vector<std::string> environment = merge_environment(environ, {});
  const SpawnResult result =
      spawn({.path = program.path.c_str(),
             .argv = pointers(arguments).data(),
             .environment = pointers(environment).data(),
             .stdio = {in.read_end.get(), out.write_end.get(), err.write_end.get()},
             .group = is_apart ? SpawnRequest::Group::kNew : SpawnRequest::Group::kParents,
             .signal_mask = signal_mask},
            -1,
            Deadline::after(kExecTimeout));
  if (result.error_number != 0) {
    throw exec_error(program, result.error_number);
  }
  pid_ = result.pid;
  errors_ = std::move(err.read_end);
  ::fcntl(errors_.get(), F_SETFL, O_RDONLY | O_NONBLOCK);
  loop_.add(errors_.get(), EPOLLIN, [this](std::uint32_t /*events*/) { on_error_text(); });
  link_ = std::make_unique<HostLink>(
      loop_,
      std::move(out.read_end),
      std::move(in.write_end),
      KeepAlive{},
      HostLink::Events{.on_message = [this](const Message& message) { take(message); },
                       .on_noise = [this](std::string_view text) { take_text(text); },
                       .on_lost = [this](const std::string& why) { problem_ = why; }});
  link_->send(begin_);
}

void RemoteHost::send(const Message& message) {
  if (link_) {
    link_->send(message);
  }
}

void RemoteHost::pause(bool is_paused) {
  if (link_) {
    link_->pause(is_paused);
  }
}

void RemoteHost::take(const Message& message) {
  if (const auto* const output = std::get_if<Output>(&message)) {
    events_.on_output(*output);
    return;
  }
  if (const auto* const ready = std::get_if<Ready>(&message)) {
    is_ready_ = true;
    if (ready->release != release()) {
      ended_ = Ended{
          kNoProgram,
          fmt::format("{} has unisono {}, and this host has {}: install the same version on both",
                      name(),
                      ready->release,
                      release())};
      send(Stop{ended_->report});
    }
  } else if (const auto* const ended = std::get_if<Ended>(&message); ended != nullptr && !ended_) {
    ended_ = *ended;
  }
}

void RemoteHost::on_error_text() {
  std::array<char, kMaxLineBytes> buffer;
  const ssize_t n_bytes = ::read(errors_.get(), buffer.data(), buffer.size());
  if (n_bytes > 0) {
    take_text({buffer.data(), static_cast<std::size_t>(n_bytes)});
  } else if (n_bytes == 0 || (errno != EAGAIN && errno != EINTR)) {
    loop_.remove(errors_.get());
    errors_.reset();
  }
}

void RemoteHost::take_text(std::string_view text) {
  error_lines_.feed(text, [this](const Line& line) { take_line(line.text); });
}

void RemoteHost::take_line(std::string_view line) {
  tail_.add(line);
  events_.on_line(std::string(line));
}

// Reads the rest of stderr without waiting for its end: a background process may keep the other end
// open for long.
void RemoteHost::finish_errors() {
  constexpr int kMaxReads = 64;
  for (int i = 0; i < kMaxReads && errors_.is_open(); ++i) {
    on_error_text();
  }
  if (const std::string last(error_lines_.partial().text); !last.empty()) {
    error_lines_.clear();
    take_line(last);
  }
}

void RemoteHost::reap() {
  int status = 0;
  if (pid_ > 0 && ::waitpid(pid_, &status, WNOHANG) == pid_) {
    pid_ = -1;
    status_ = status;
    finish_errors();
  }
}

void RemoteHost::kill() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    int status = 0;
    (void)::waitpid(pid_, &status, 0);
    pid_ = -1;
    status_ = status;
    finish_errors();
  }
  link_.reset();
}

int RemoteHost::loss_code() const {
  const int code = status_ ? exit_code(*status_) : 0;
  return code == 0 || code == kNoConnection ? 1 : code;
}

std::string RemoteHost::describe_loss() const {
  const bool says_more = status_ && exit_code(*status_) != 0;
  std::string text = fmt::format(
      "{}: {}; `{}` {}",
      name(),
      is_ready_ ? "its launcher is lost" : "unisono could not be started there",
      command_,
      says_more ? "ended with " + describe_end(*status_)
                : (problem_.empty() ? "failed without a reason" : "failed: " + problem_));
  if (!is_ready_ && status_ && exit_code(*status_) == kNoProgram) {
    text += "\nit needs unisono at the same path as here";
  }
  if (!tail_.lines().empty()) {
    text += "\nit wrote:";
    for (const std::string& line : tail_.lines()) {
      text += "\n  " + line;
    }
  }
  return text;
}

}  // namespace unisono::launch::hosts
