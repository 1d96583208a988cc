#include "unisono/launch/process/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "unisono/base/error.h"

namespace unisono::launch {
namespace {

bool is_ignored(int signal_number) {
  struct sigaction action{};
  return ::sigaction(signal_number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

SignalFd::SignalFd(std::initializer_list<int> caught, std::initializer_list<int> blocked) {
  // If SIGCHLD were ignored, the kernel would reap children before this process can read their
  // status.
  ::signal(SIGCHLD, SIG_DFL);
  sigset_t all;
  sigset_t wanted;
  sigemptyset(&all);
  sigemptyset(&wanted);
  for (const int signal_number : caught) {
    if (!is_ignored(signal_number)) {
      sigaddset(&wanted, signal_number);
      sigaddset(&all, signal_number);
    }
  }
  for (const int signal_number : blocked) {
    sigaddset(&all, signal_number);
  }
  ::pthread_sigmask(SIG_BLOCK, &all, &original_mask_);
  fd_ = Fd(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_.is_open()) {
    throw system_error("signalfd", errno);
  }
}

std::optional<CaughtSignal> SignalFd::next() {
  signalfd_siginfo info{};
  if (::read(fd_.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) {
    return std::nullopt;
  }
  return CaughtSignal{.number = static_cast<int>(info.ssi_signo),
                      .is_from_terminal = info.ssi_code == SI_KERNEL};
}

const char* signal_name(int signal_number) {
  static constexpr std::array<std::pair<int, const char*>, 20> kNames{{
      {SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"}, {SIGILL, "SIGILL"},
      {SIGTRAP, "SIGTRAP"}, {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},
      {SIGKILL, "SIGKILL"}, {SIGUSR1, "SIGUSR1"}, {SIGSEGV, "SIGSEGV"}, {SIGUSR2, "SIGUSR2"},
      {SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"}, {SIGTERM, "SIGTERM"}, {SIGXCPU, "SIGXCPU"},
      {SIGXFSZ, "SIGXFSZ"}, {SIGSYS, "SIGSYS"},   {SIGSTOP, "SIGSTOP"}, {SIGCONT, "SIGCONT"},
  }};
  for (const auto& [number, name] : kNames) {
    if (number == signal_number) {
      return name;
    }
  }
  return "an unusual signal";
}

}  // namespace unisono::launch
