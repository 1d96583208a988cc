#include "unisono/cli/doctor/examine_system.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "unisono/base/config.h"
#include "unisono/cli/doctor/system_files.h"

namespace unisono::cli::doctor {
namespace {

namespace fs = std::filesystem;

// "5.10.0-8-amd64" is older than 5.15.
bool is_older(const std::string& release, int major, int minor) {
  int found_major = 0;
  int found_minor = 0;
  const char* const end = release.data() + release.size();
  const auto [dot, error] = std::from_chars(release.data(), end, found_major);
  if (error != std::errc() || dot == end) {
    return false;
  }
  (void)std::from_chars(dot + 1, end, found_minor);
  return found_major < major || (found_major == major && found_minor < minor);
}

Finding examine_release(const fs::path& root) {
  const std::string release =
      read_text(root / "proc/sys/kernel/osrelease").value_or("of unknown version");
  std::string name =
      value_of(read_text(root / "etc/os-release").value_or(""), "PRETTY_NAME=").value_or("");
  std::erase(name, '"');
  Finding finding{.state = State::kInfo,
                  .topic = "kernel",
                  .text = fmt::format("Linux {}{}{}", release, name.empty() ? "" : "; ", name)};
  constexpr int kMajor = 5;
  constexpr int kMinor = 3;
  if (is_older(release, kMajor, kMinor)) {
    finding.state = State::kProblem;
    finding.text += "; it has no pidfd_open, by which the death of a rank is seen";
    finding.advice = fmt::format("Linux {}.{} or newer", kMajor, kMinor);
  }
  return finding;
}

std::string find_container(const Environment& environment, const fs::path& root) {
  for (const char* const name : {"APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"}) {
    if (const auto image = environment(name)) {
      return fmt::format("Apptainer ({}={})", name, *image);
    }
  }
  std::error_code error;
  if (environment("KUBERNETES_SERVICE_HOST")) {
    return "a Kubernetes pod (KUBERNETES_SERVICE_HOST)";
  }
  if (fs::exists(root / "run/.containerenv", error)) {
    return "Podman (/run/.containerenv)";
  }
  if (fs::exists(root / ".dockerenv", error)) {
    return "Docker (/.dockerenv)";
  }
  const std::string groups = read_text(root / "proc/1/cgroup").value_or("");
  for (const char* const word : {"docker", "kubepods", "containerd", "lxc"}) {
    if (groups.find(word) != std::string::npos) {
      return fmt::format("{} (/proc/1/cgroup)", word);
    }
  }
  if (const auto name = environment("container")) {
    return *name + " (the variable container)";
  }
  return "";
}

bool has_ptrace_capability(const fs::path& root) {
  constexpr int kHexadecimal = 16;
  constexpr unsigned kSysPtrace = 19;
  const std::string set =
      value_of(read_text(root / "proc/self/status").value_or(""), "CapEff:").value_or("0");
  std::uint64_t bits = 0;
  (void)std::from_chars(set.data(), set.data() + set.size(), bits, kHexadecimal);
  return (bits >> kSysPtrace & 1) != 0;
}

}  // namespace

Findings examine_kernel(const Environment& environment, const fs::path& root) {
  Findings findings{examine_release(root)};
  const std::string container = find_container(environment, root);
  if (!container.empty()) {
    findings.push_back(
        {.state = State::kInfo, .topic = "container", .text = "this seems to be " + container});
  }
  return findings;
}

std::string try_single_copy() {
  const int original = 1;
  int copy = 0;
  const iovec from{.iov_base = const_cast<int*>(&original), .iov_len = sizeof original};
  const iovec to{.iov_base = &copy, .iov_len = sizeof copy};
  if (::process_vm_readv(::getpid(), &to, 1, &from, 1, 0) == sizeof copy) {
    return "";
  }
  return "process_vm_readv: " + std::generic_category().message(errno);
}

Finding examine_single_copy(const std::string& error, const fs::path& root) {
  Finding finding{.state = State::kWarning, .topic = "single copy", .text = ""};
  if (!error.empty()) {
    finding.text = error + ": large messages within a node are copied twice";
    finding.advice =
        "let the container's seccomp profile allow process_vm_readv (docker run "
        "--cap-add SYS_PTRACE does)";
    return finding;
  }
  const std::int64_t scope = read_number(root / "proc/sys/kernel/yama/ptrace_scope").value_or(0);
  constexpr std::int64_t kNobody = 3;
  if (scope == 0 || (scope < kNobody && has_ptrace_capability(root))) {
    finding.state = State::kOk;
    finding.text = "ranks of a user may read each other's memory (process_vm_readv)";
    return finding;
  }
  finding.text = fmt::format(
      "kernel.yama.ptrace_scope={} keeps ranks from reading each other's memory: large messages "
      "within a node are copied twice",
      scope);
  finding.advice = scope == kNobody ? "it can be changed at the next start of the machine only"
                                    : "sysctl kernel.yama.ptrace_scope=0, as root";
  return finding;
}

WallClock read_clock() {
  timex state{};
  const int result = ::adjtimex(&state);
  return {
      .now = std::chrono::system_clock::now(),
      .is_synchronized = result >= 0 && result != TIME_ERROR && (state.status & STA_UNSYNC) == 0};
}

Finding examine_clock(const WallClock& clock) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(clock.now);
  Finding finding{
      .state = State::kInfo,
      .topic = "clock",
      .text = fmt::format(
          "{:%Y-%m-%d %H:%M:%S} UTC, {}",
          fmt::gmtime(seconds),
          clock.is_synchronized ? "synchronized" : "not synchronized as far as the kernel knows")};
  // 2025-01-01: no clock that was ever set shows less.
  constexpr std::time_t kEarliest = 1'735'689'600;
  if (seconds < kEarliest) {
    finding.state = State::kWarning;
    finding.advice = "set it, best by NTP (chrony): logs and certificates depend on it";
  }
  return finding;
}

}  // namespace unisono::cli::doctor
