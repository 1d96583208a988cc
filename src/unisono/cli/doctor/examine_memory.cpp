#include "unisono/cli/doctor/examine_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "unisono/cli/doctor/system_files.h"

namespace unisono::cli::doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
// Below this a rank with a model has hardly room.
constexpr std::uint64_t kLittleMemory = 512 * kMiB;

std::optional<std::uint64_t> kibibytes_of(const std::string& table, std::string_view name) {
  const std::string text = value_of(table, name).value_or("");
  const auto number = parse_whole(std::string_view(text).substr(0, text.find(' ')));
  return number && *number >= 0 ? std::optional(static_cast<std::uint64_t>(*number) * 1024)
                                : std::nullopt;
}

Findings examine_machine(const std::string& table) {
  const auto total = kibibytes_of(table, "MemTotal:");
  const auto available = kibibytes_of(table, "MemAvailable:");
  if (!total || !available) {
    return {};
  }
  Finding finding{.state = State::kOk,
                  .topic = "memory",
                  .text = fmt::format(
                      "{} of {} are available", format_bytes(*available), format_bytes(*total))};
  if (*available < kLittleMemory) {
    finding.state = State::kWarning;
    finding.advice = "end what else runs here; the kernel kills processes when memory runs out";
  }
  return {finding};
}

struct Limit {
  std::uint64_t most;
  std::uint64_t used;
};

void keep_tighter(std::optional<Limit>& tightest, const fs::path& most, const fs::path& used) {
  const std::optional<std::int64_t> n_most = read_number(most);
  if (!n_most || *n_most < 0 ||
      (tightest && tightest->most <= static_cast<std::uint64_t>(*n_most))) {
    return;
  }
  tightest = {
      .most = static_cast<std::uint64_t>(*n_most),
      .used = static_cast<std::uint64_t>(std::max<std::int64_t>(0, read_number(used).value_or(0)))};
}

// Of this process's control group and all above it; in a container its own is the root of what
// /sys shows.
std::optional<Limit> cgroup_limit(const fs::path& root) {
  const std::string groups = read_text(root / "proc/self/cgroup").value_or("");
  const fs::path folder = root / "sys/fs/cgroup";
  std::optional<Limit> tightest;
  for (fs::path group = fs::path(value_of(groups, "0::").value_or("/")).relative_path();;
       group = group.parent_path()) {
    keep_tighter(tightest, folder / group / "memory.max", folder / group / "memory.current");
    if (group.empty()) {
      break;
    }
  }
  for (const fs::path& old : {folder / "memory", folder}) {
    keep_tighter(tightest, old / "memory.limit_in_bytes", old / "memory.usage_in_bytes");
  }
  return tightest;
}

Findings examine_cgroup(const fs::path& root, const std::string& table) {
  const std::optional<Limit> limit = cgroup_limit(root);
  const auto total = kibibytes_of(table, "MemTotal:");
  // Version 1 says "none" by a number near 2^63.
  if (!limit || (total && limit->most >= *total)) {
    return {};
  }
  const std::uint64_t left = limit->most - std::min(limit->most, limit->used);
  Finding finding{.state = State::kOk,
                  .topic = "memory",
                  .text = fmt::format("its control group may use {}, of which {} are left",
                                      format_bytes(limit->most),
                                      format_bytes(left))};
  if (left < kLittleMemory) {
    finding.state = State::kWarning;
    finding.advice =
        "give the container or the job more memory (docker run --memory, srun --mem, Kubernetes' "
        "limits); at its limit the kernel kills processes";
  }
  return {finding};
}

Findings examine_overcommit(const fs::path& root, const std::string& table) {
  constexpr std::int64_t kNever = 2;
  if (read_number(root / "proc/sys/vm/overcommit_memory") != kNever) {
    return {};
  }
  const std::uint64_t limit = kibibytes_of(table, "CommitLimit:").value_or(0);
  const std::uint64_t used = kibibytes_of(table, "Committed_AS:").value_or(0);
  const std::uint64_t left = limit - std::min(limit, used);
  return {{.state = left < kLittleMemory ? State::kWarning : State::kInfo,
           .topic = "memory",
           .text = fmt::format("vm.overcommit_memory=2: the kernel promises {} more, then refuses "
                               "memory even where some is free",
                               format_bytes(left)),
           .advice = "sysctl vm.overcommit_memory=0, as root, lifts that"}};
}

// The word in brackets is in force.
Findings examine_huge_pages(const fs::path& root) {
  constexpr std::string_view kSwitch = "sys/kernel/mm/transparent_hugepage/shmem_enabled";
  const std::string words = read_text(root / kSwitch).value_or("");
  const std::size_t begin = words.find('[');
  const std::size_t end = words.find(']', begin);
  if (end == std::string::npos) {
    return {};
  }
  const std::string word = words.substr(begin + 1, end - begin - 1);
  Finding finding{.state = State::kInfo,
                  .topic = "huge pages",
                  .text = fmt::format("shmem_enabled is \"{}\"", word)};
  if (word == "never" || word == "deny") {
    finding.text +=
        ": the memory that ranks share has small pages, and what takes tens of MiB in it "
        "a tenth more time";
    finding.advice = fmt::format("echo advise >/{}, as root", kSwitch);
  } else {
    finding.text += ": large blocks of the memory that ranks share may have them";
  }
  return {finding};
}

}  // namespace

Findings examine_memory(const fs::path& root) {
  const std::string table = read_text(root / "proc/meminfo").value_or("");
  Findings findings = examine_machine(table);
  append(findings, examine_cgroup(root, table));
  append(findings, examine_overcommit(root, table));
  append(findings, examine_huge_pages(root));
  return findings;
}

}  // namespace unisono::cli::doctor
