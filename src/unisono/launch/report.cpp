#include "unisono/launch/report.h"

#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "unisono/launch/process/signals.h"
#include "unisono/launch/rank_ranges.h"

namespace unisono::launch {
namespace {

std::string seconds(std::chrono::nanoseconds duration) {
  return fmt::format("{:.1f} s", std::chrono::duration<double>(duration).count());
}

bool has_failed_itself(const WorkerRecord& worker) {
  return worker.state == WorkerRecord::State::kEnded && worker.status != 0 && !worker.ended_by_us;
}

// Also after it was asked to end.
bool has_ended_well(const WorkerRecord& worker) {
  return worker.state == WorkerRecord::State::kEnded && worker.status == 0;
}

// One line per way of ending, with the ranks that ended so.
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

// Lines behind the first one stand below it.
std::string indented(const std::string& text) {
  std::string result;
  for (const char letter : text) {
    result += letter == '\n' ? "\n    " : std::string(1, letter);
  }
  return result;
}

// Often one rank says what was wrong, and another one is gone first.
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
                     has_ended ? "failed" : "was given up",
                     seconds(failed.lifetime),
                     has_ended ? describe_end(failed.status) : failed.given_up);
}

std::string failure_report(std::span<const WorkerRecord> workers,
                           std::size_t first,
                           const FailureContext& context) {
  const WorkerRecord& failed = workers[first];
  std::string text = describe_failed_rank(failed, context.host);
  if (!failed.given_up.empty()) {
    text += "\n  who waited for it: " + indented(failed.waits);
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

}  // namespace unisono::launch
