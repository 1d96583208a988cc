#include "unisono/cli/doctor/checks.h"

#include <fmt/format.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <span>
#include <sstream>
#include <system_error>

#include "unisono/base/fd.h"
#include "unisono/base/process.h"

namespace unisono::cli::doctor {
namespace {

enum class Scope : std::uint8_t { kProcess, kNode };
using enum Scope;

struct Check {
  const char* topic;
  Scope scope;
  CheckFunction* run;
};

// Table of the checks, in the order of the report.
constexpr std::array kChecks{
    Check{"launcher", kProcess, check_launcher},
    Check{"Slurm", kProcess, check_slurm},
    Check{"meeting place", kProcess, check_meeting_place},
    Check{"port", kProcess, check_port},
    Check{"secret", kProcess, check_secret},
    Check{"settings", kProcess, check_settings},
    Check{"shared memory", kProcess, check_shared_memory},
    Check{"/dev/shm", kProcess, check_dev_shm},
    Check{"address space", kProcess, check_address_space},
    Check{"locked memory", kProcess, check_locked_memory},
    Check{"open files", kProcess, check_open_files},
    Check{"cores", kProcess, check_cores},
    Check{"threads", kProcess, check_threads},
    Check{"GPU", kProcess, check_gpus},
    Check{"single copy", kProcess, check_single_copy},
    Check{"variable", kProcess, check_launcher_variables},
    Check{"host", kNode, check_host},
    Check{"data", kNode, check_data},
    Check{"interface", kNode, check_interfaces},
    Check{"memory", kNode, check_memory},
    Check{"huge pages", kNode, check_huge_pages},
    Check{"NUMA", kNode, check_numa},
    Check{"libraries", kNode, check_libraries},
    Check{"kernel", kNode, check_kernel},
    Check{"container", kNode, check_container},
    Check{"clock", kNode, check_clock},
};

constexpr std::string_view kWhiteSpace = " \t\r\n";

std::string failure_of(const char* call) {
  return fmt::format("{}: {}", call, std::generic_category().message(errno));
}

// Creates a small block of memory in the same way as an arena of transport/shm. Returns the error,
// or an empty text.
std::string try_arena() {
  constexpr std::size_t kBytes = 4096;
  const Fd memory(::memfd_create("unisono-doctor", MFD_CLOEXEC));
  if (!memory.is_open()) {
    return failure_of("memfd_create");
  }
  if (::ftruncate(memory.get(), kBytes) != 0) {
    return failure_of("ftruncate");
  }
  void* const page =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory.get(), 0);
  if (page == MAP_FAILED) {
    return failure_of("mmap");
  }
  *static_cast<volatile std::byte*>(page) = std::byte{1};
  (void)::munmap(page, kBytes);
  return "";
}

// A filter of system calls refuses process_vm_readv() even for the caller's own memory, so this
// test needs no second process.
std::string try_single_copy() {
  int original = 1;
  int copy = 0;
  const iovec from{.iov_base = &original, .iov_len = sizeof original};
  const iovec to{.iov_base = &copy, .iov_len = sizeof copy};
  const bool is_copied = ::process_vm_readv(::getpid(), &to, 1, &from, 1, 0) == sizeof copy;
  return is_copied ? "" : failure_of("process_vm_readv");
}

}  // namespace

std::string_view to_string(State state) {
  constexpr std::array<std::string_view, 4> kNames{"problem", "warning", "ok", "info"};
  return kNames.at(static_cast<std::size_t>(state));
}

Findings problem(std::string text, std::string advice, std::string topic) {
  return {{kProblem, std::move(text), std::move(advice), std::move(topic)}};
}

Findings warning(std::string text, std::string advice, std::string topic) {
  return {{kWarning, std::move(text), std::move(advice), std::move(topic)}};
}

Findings ok(std::string text) {
  return {{kOk, std::move(text)}};
}

Findings info(std::string text, std::string advice) {
  return {{kInfo, std::move(text), std::move(advice)}};
}

Findings warn_if(bool is_bad, Findings good, const std::string& more, std::string advice) {
  return is_bad ? warning(good.at(0).text + more, std::move(advice)) : std::move(good);
}

void append(Findings& findings, Findings more) {
  findings.insert(
      findings.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

LocalReport run_checks(const Machine& machine) {
  LocalReport report;
  for (const Check& check : kChecks) {
    Findings findings = check.run(machine);
    for (Finding& finding : findings) {
      finding.topic = check.topic;
    }
    append(check.scope == kNode ? report.of_node : report.of_process, std::move(findings));
  }
  return report;
}

Machine read_machine(const Environment& environment) {
  Machine machine{.environment = environment,
                  .setting_names = process_variables("UNISONO_"),
                  .config = readable_config(environment),
                  .place = find_place(environment),
                  .interfaces = net::interfaces(),
                  .resolve = [](const std::string& host) { return net::resolve(host, 0); },
                  .probe_port = doctor::probe_port,
                  .usable_cores = available_cores(),
                  .arena_error = try_arena(),
                  .single_copy_error = try_single_copy(),
                  .now = std::chrono::system_clock::now()};
  const std::string host = machine.place.meeting_host();
  machine.route_source = host.empty() ? net::default_route_address() : find_source(host);
  machine.online_cores = static_cast<int>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  struct statvfs shm{};
  if (::statvfs("/dev/shm", &shm) == 0) {
    machine.shm_bytes = std::uint64_t{shm.f_blocks} * shm.f_frsize;
  }
  (void)::getrlimit(RLIMIT_AS, &machine.address_space);
  (void)::getrlimit(RLIMIT_MEMLOCK, &machine.locked_memory);
  (void)::getrlimit(RLIMIT_NOFILE, &machine.open_files);
  timex clock{};
  const int clock_state = ::adjtimex(&clock);
  machine.is_clock_synchronized =
      clock_state >= 0 && clock_state != TIME_ERROR && (clock.status & STA_UNSYNC) == 0;
  return machine;
}

std::optional<std::string> Machine::text(const std::filesystem::path& file) const {
  constexpr std::streamsize kMaxBytes = 1 << 16;
  std::error_code ignored;
  // Opening a pipe would wait for its writer.
  if (!std::filesystem::is_regular_file(root / file, ignored)) {
    return std::nullopt;
  }
  std::ifstream stream(root / file);
  std::string text(kMaxBytes, '\0');
  stream.read(text.data(), kMaxBytes);
  if (!stream.is_open() || stream.bad()) {
    return std::nullopt;
  }
  text.resize(static_cast<std::size_t>(stream.gcount()));
  text.erase(text.find_last_not_of(kWhiteSpace) + 1);
  return text;
}

std::optional<std::int64_t> Machine::number(const std::filesystem::path& file) const {
  const std::string begin = text(file).value_or("");
  return parse_whole(std::string_view(begin).substr(0, begin.find_first_of(kWhiteSpace)));
}

std::optional<std::string> Machine::value(const std::filesystem::path& file,
                                          std::string_view name) const {
  std::istringstream lines(text(file).value_or(""));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name)) {
      line.erase(line.find_last_not_of(kWhiteSpace) + 1);
      return line.substr(std::min(line.size(), line.find_first_not_of(kWhiteSpace, name.size())));
    }
  }
  return std::nullopt;
}

std::vector<std::filesystem::path> Machine::glob(const std::filesystem::path& pattern) const {
  std::vector<std::filesystem::path> paths;
  glob_t found{};
  // NOLINTNEXTLINE(concurrency-mt-unsafe): only GLOB_TILDE reads shared state, the user database.
  if (::glob((root / pattern).c_str(), 0, nullptr, &found) == 0) {
    for (const char* const path : std::span(found.gl_pathv, found.gl_pathc)) {
      paths.push_back(std::filesystem::path(path).lexically_relative(root));
    }
  }
  ::globfree(&found);
  return paths;
}

std::optional<std::int64_t> parse_whole(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number)
                                                                  : std::nullopt;
}

std::string format_bytes(std::uint64_t n_bytes) {
  constexpr std::array<std::string_view, 5> kUnits{"bytes", "KiB", "MiB", "GiB", "TiB"};
  constexpr double kStep = 1024;
  auto value = static_cast<double>(n_bytes);
  std::size_t unit = 0;
  for (; value >= kStep && unit + 1 < kUnits.size(); ++unit) {
    value /= kStep;
  }
  return fmt::format("{:.4g} {}", value, kUnits[unit]);
}

std::string count_of(std::int64_t n, std::string_view noun) {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

}  // namespace unisono::cli::doctor
