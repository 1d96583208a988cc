#include "unisono/launch/process/children.h"

#include <dirent.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>  // IWYU pragma: keep
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "unisono/base/process.h"

namespace unisono::launch {
namespace {

std::optional<pid_t> parse_pid(std::string_view text) {
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), pid);
  if (error != std::errc() || end == text.data()) {
    return std::nullopt;
  }
  return pid;
}

std::optional<pid_t> parent_of(const std::string& pid_text) {
  const std::optional<ProcessStat> stat = read_process_stat("/proc/" + pid_text);
  return stat ? std::optional(stat->parent) : std::nullopt;
}

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

// Returns true if the process runs a shell. A shell often runs in front of a program, to set
// environment, folder or CPU binding.
bool is_shell(const std::string& process) {
  constexpr std::array<std::string_view, 12> kShells{
      "ash", "bash", "busybox", "csh", "dash", "fish", "ksh", "ksh93", "mksh", "sh", "tcsh", "zsh"};
  std::error_code error;
  const std::string name =
      std::filesystem::read_symlink(process + "/exe", error).filename().string();
  return !error && std::ranges::find(kShells, name) != kShells.end();
}

bool handles_sigterm(const std::string& process) {
  constexpr std::string_view kCaught = "SigCgt:";
  constexpr int kHex = 16;
  std::ifstream file(process + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(kCaught)) {
      const std::uint64_t caught = std::strtoull(line.c_str() + kCaught.size(), nullptr, kHex);
      return (caught >> (SIGTERM - 1) & 1) != 0;
    }
  }
  return false;
}

bool has_children() {
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

}  // namespace

std::vector<pid_t> list_children() {
  std::vector<pid_t> children;
  if (!has_children()) {
    return children;  // Avoids a scan of all processes of the machine.
  }
  const pid_t self = ::getpid();
  const std::unique_ptr<DIR, CloseDirectory> proc(::opendir("/proc"));
  if (proc == nullptr) {
    return children;
  }
  // readdir() is safe here: no other thread uses this directory stream.
  while (const dirent* entry = ::readdir(proc.get())) {  // NOLINT(concurrency-mt-unsafe)
    const std::string name = static_cast<const char*>(entry->d_name);
    const std::optional<pid_t> pid = parse_pid(name);
    if (pid && parent_of(name) == self) {
      children.push_back(*pid);
    }
  }
  return children;
}

std::set<pid_t> programs_of_shell(pid_t shell) {
  std::set<pid_t> programs;
  const std::string process = fmt::format("/proc/{}", shell);
  if (!is_shell(process) || handles_sigterm(process)) {
    return programs;
  }
  std::ifstream children(fmt::format("{}/task/{}/children", process, shell));
  for (pid_t child = 0; children >> child;) {
    programs.insert(child);
    programs.merge(programs_of_shell(child));
  }
  return programs;
}

bool reap_children(const OnReaped& on_reaped) {
  for (;;) {
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, WNOHANG);
    if (pid > 0) {
      on_reaped(pid, status);
    } else if (pid == 0) {
      return true;
    } else if (errno != EINTR) {
      return false;
    }
  }
}

void wait_for_child_signal() {
  constexpr long kNanoseconds = 10'000'000;
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  const timespec at_most{.tv_sec = 0, .tv_nsec = kNanoseconds};
  ::sigtimedwait(&set, nullptr, &at_most);
}

std::vector<pid_t> kill_descendants(const std::set<pid_t>& spared,
                                    Deadline deadline,
                                    const OnReaped& on_reaped) {
  while (reap_children(on_reaped)) {
    std::vector<pid_t> victims = list_children();
    std::erase_if(victims, [&](pid_t pid) { return spared.contains(pid); });
    if (victims.empty() && !spared.empty()) {
      return {};
    }
    if (deadline.has_passed()) {
      return victims;
    }
    for (const pid_t pid : victims) {
      ::kill(pid, SIGKILL);
    }
    wait_for_child_signal();
  }
  return {};
}

EndWatch::EndWatch(net::EventLoop& loop, std::function<void()> on_end)
    : loop_(loop), on_end_(std::move(on_end)) {}

EndWatch::~EndWatch() {
  while (!pidfds_.empty()) {
    remove(pidfds_.begin()->first);
  }
}

void EndWatch::add(std::size_t worker, pid_t pid) {
  Fd pidfd = open_pidfd(pid);
  if (!pidfd.is_open()) {
    return;
  }
  loop_.add(pidfd.get(), EPOLLIN, [this, worker](std::uint32_t /*events*/) {
    remove(worker);
    unreported_.push_back(worker);
    on_end_();
  });
  pidfds_.emplace(worker, std::move(pidfd));
}

void EndWatch::mark_reported(std::size_t worker) {
  remove(worker);
  std::erase(unreported_, worker);
}

bool EndWatch::is_unreported(std::size_t worker) const {
  return std::ranges::find(unreported_, worker) != unreported_.end();
}

void EndWatch::remove(std::size_t worker) {
  const auto found = pidfds_.find(worker);
  if (found != pidfds_.end()) {
    loop_.remove(found->second.get());
    pidfds_.erase(found);
  }
}

}  // namespace unisono::launch
