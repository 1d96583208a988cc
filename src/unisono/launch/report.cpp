#include "unisono/launch/report.h"

#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/launch/process/signals.h"

namespace unisono::launch {

Cause signal_cause(int signal_number) {
  return {kSignalBase + signal_number,
          std::nullopt,
          fmt::format("ended by {}", signal_name(signal_number))};
}

Cause lost_guardian_cause(pid_t guardian, const std::string& host) {
  return {
      .exit_code = kLauncherFailed,
      .failed_worker = std::nullopt,
      .message = fmt::format("the guardian process ({}pid {}) was killed, so its ranks were ended",
                             host.empty() ? "" : host + ", ",
                             guardian),
      .is_lost_guardian = true};
}

std::string rank_ranges(std::span<const int> ranks, std::string_view separator) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) {
      ++last;
    }
    text += i == 0 ? "" : separator;
    text += last == i ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[last]);
    i = last + 1;
  }
  return text;
}

namespace {

std::string seconds(std::chrono::nanoseconds duration) {
  return fmt::format("{:.1f} s", std::chrono::duration<double>(duration).count());
}

bool has_failed_itself(const WorkerRecord& worker) {
  return worker.state == WorkerRecord::State::kEnded && worker.status != 0 && !worker.ended_by_us;
}

// True as well for a rank that ended normally after a signal.
bool has_ended_well(const WorkerRecord& worker) {
  return worker.state == WorkerRecord::State::kEnded && worker.status == 0;
}

// Returns a line for each kind of end, with the ranks that ended in that way.
std::string describe_others(std::span<const WorkerRecord> workers,
                            std::size_t first,
                            bool ended_by_us,
                            const char* headline) {
  std::map<std::string, std::vector<int>> by_end;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    const WorkerRecord& worker = workers[i];
    const bool is_listed =
        ended_by_us ? worker.ended_by_us && !has_ended_well(worker) : has_failed_itself(worker);
    if (i != first && is_listed) {
      const bool is_ended = worker.state == WorkerRecord::State::kEnded;
      by_end[is_ended ? describe_end(worker.status) : "its end was not seen"].push_back(
          worker.rank);
    }
  }
  std::string text;
  for (const auto& [end, ranks] : by_end) {
    text += fmt::format("\n  {}: {} ({})", headline, rank_list(ranks), end);
  }
  return text;
}

// Indents the lines after the first.
std::string indented(const std::string& text) {
  std::string result;
  for (const char letter : text) {
    result += letter == '\n' ? "\n    " : std::string(1, letter);
  }
  return result;
}

// Often a rank reports the problem while another rank ends first.
std::string describe_output(std::span<const WorkerRecord> workers,
                            std::size_t first,
                            const FailureContext& context) {
  const auto noun = [](const std::deque<std::string>& lines) {
    return lines.size() == 1 ? "last line" : "last lines";
  };
  std::string text;
  std::deque<std::string> lines = context.last_lines(first);
  if (lines.size() == 1 && workers[first].error.find(lines.front()) != std::string::npos) {
    return "";
  }
  if (!lines.empty()) {
    text = fmt::format("\n  its {}:", noun(lines));
  } else {
    text = "\n  it wrote nothing";
    for (std::size_t i = 0; i < workers.size() && lines.empty(); ++i) {
      if (i != first && has_failed_itself(workers[i])) {
        lines = context.last_lines(i);
        text = fmt::format("\n  it wrote nothing; the {} of rank {}, which failed after it:",
                           noun(lines),
                           workers[i].rank);
      }
    }
    text = lines.empty() ? "\n  it wrote nothing" : text;
  }
  for (const std::string& line : lines) {
    text += "\n  | " + line;
  }
  return text;
}

}  // namespace

int exit_code(int wait_status) {
  return WIFSIGNALED(wait_status) ? kSignalBase + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

std::string describe_end(int wait_status) {
  if (!WIFSIGNALED(wait_status)) {
    return fmt::format("exit code {}", WEXITSTATUS(wait_status));
  }
  const int signal_number = WTERMSIG(wait_status);
  return fmt::format(
      "killed by {}{}", signal_name(signal_number), WCOREDUMP(wait_status) ? " (core dumped)" : "");
}

std::string describe_failed_rank(const WorkerRecord& failed, const std::string& host) {
  const bool has_ended = failed.given_up.empty();
  return fmt::format("rank {} ({}pid {}) {} after {}: {}",
                     failed.rank,
                     host.empty() ? "" : host + ", ",
                     failed.pid,
                     has_ended ? "failed" : "was aborted",
                     seconds(failed.lifetime),
                     has_ended ? describe_end(failed.status) : failed.given_up);
}

std::string failure_report(std::span<const WorkerRecord> workers,
                           std::size_t first,
                           const FailureContext& context) {
  const WorkerRecord& failed = workers[first];
  std::string text = describe_failed_rank(failed, context.host);
  if (!failed.given_up.empty()) {
    text += "\n  waiting ranks: " + indented(failed.waits);
  } else if (WIFSIGNALED(failed.status) && WTERMSIG(failed.status) == SIGKILL &&
             !context.kill_note.empty()) {
    text += "\n  " + context.kill_note;
  }
  if (!failed.error.empty()) {
    text += "\n  its exception: " + indented(failed.error);
  }
  text += describe_output(workers, first, context);
  text += describe_others(workers, first, false, "failed after it");
  text += describe_others(workers, first, true, "ended because of it");
  return text;
}

std::string restart_report(std::span<const std::string> failures, int max_restarts) {
  constexpr std::size_t kMaxListed = 10;
  std::string text = fmt::format("{} of {} restarts used:", failures.size(), max_restarts);
  const std::size_t first = failures.size() - std::min(failures.size(), kMaxListed);
  for (std::size_t i = first; i < failures.size(); ++i) {
    text += fmt::format("\n  before restart {}, {}", i + 1, failures[i]);
  }
  return text;
}

std::string pid_list(std::span<const pid_t> pids) {
  std::string text;
  for (const pid_t pid : pids) {
    text += fmt::format(" {}", pid);
  }
  return text;
}

std::string rank_list(std::span<const int> ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + rank_ranges(ranks, ", ");
}

namespace {

constexpr std::size_t kMaxFileBytes = 1 << 20;
constexpr std::size_t kMaxErrorBytes = 64 << 10;

std::string read_all(int fd) {
  std::string text(kMaxFileBytes, '\0');
  std::size_t n_read = 0;
  while (n_read < text.size()) {
    const ssize_t n_bytes =
        ::pread(fd, text.data() + n_read, text.size() - n_read, static_cast<off_t>(n_read));
    if (n_bytes <= 0) {
      break;
    }
    n_read += static_cast<std::size_t>(n_bytes);
  }
  text.resize(n_read);
  return text;
}

// Finds the text in {"message": {"message": "ValueError: ...", "extraInfo": {...}}} or {"message":
// "..."}. Returns the whole text if it has neither form.
std::string find_message(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const auto* found = &json;
  while (found->is_object() && found->contains("message")) {
    found = &found->at("message");
  }
  return found->is_string() ? found->get<std::string>() : text;
}

}  // namespace

ErrorFile::ErrorFile() : file_(::memfd_create("unisono-rank-error", MFD_CLOEXEC)) {
  if (!file_.is_open()) {
    throw system_error("cannot make a file for a rank's error", errno);
  }
}

std::string ErrorFile::path() const {
  return fmt::format("/proc/{}/fd/{}", ::getpid(), file_.get());
}

std::string ErrorFile::message() const {
  const std::string text = read_all(file_.get());
  return text.empty() ? "" : find_message(text).substr(0, kMaxErrorBytes);
}

namespace {

// Returns the value of the line "oom_kill 3".
std::optional<std::uint64_t> read_count(const std::string& path) {
  std::ifstream file(path);
  std::string name;
  std::uint64_t value = 0;
  while (file >> name >> value) {
    if (name == "oom_kill") {
      return value;
    }
  }
  return std::nullopt;
}

// Reads the count of this process's group. Lines of /proc/self/cgroup are "0::/path" (version 2) or
// "4:memory:/path" (version 1).
std::optional<std::uint64_t> read_group_count(const std::string& root) {
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string_view kind = std::string_view(line).substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    std::optional<std::uint64_t> count;
    if (kind == "memory") {
      count = read_count(fmt::format("{}/sys/fs/cgroup/memory{}/memory.oom_control", root, path));
    } else if (kind.empty()) {
      count = read_count(fmt::format("{}/sys/fs/cgroup{}/memory.events", root, path));
    }
    if (count) {
      return count;
    }
  }
  return std::nullopt;
}

std::uint64_t since(const std::optional<std::uint64_t>& before,
                    const std::optional<std::uint64_t>& after) {
  return before && after && *after > *before ? *after - *before : 0;
}

}  // namespace

MemoryKills count_memory_kills(const std::string& root) {
  return {.group = read_group_count(root), .machine = read_count(root + "/proc/vmstat")};
}

std::string describe_kill(const MemoryKills& before, const MemoryKills& after) {
  if (const std::uint64_t n_killed = since(before.group, after.group); n_killed > 0) {
    return fmt::format(
        "memory ran out: the limit of this job's control group was reached, and the kernel killed "
        "{} of its processes",
        n_killed);
  }
  if (const std::uint64_t n_killed = since(before.machine, after.machine); n_killed > 0) {
    return fmt::format("memory ran out on this machine: the kernel killed {} processes meanwhile",
                       n_killed);
  }
  return before.machine && after.machine
             ? "SIGKILL came from outside; it was not for lack of memory"
             : "SIGKILL came from outside; if memory ran out, the kernel's log shows it (dmesg)";
}

}  // namespace unisono::launch
