#pragma once

#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/net/address.h"
#include "unisono/net/host.h"
#include "unisono/rendezvous/find_launch_info.h"
#include "unisono/rendezvous/launch_info.h"

namespace unisono::cli::doctor {

enum class State : std::uint8_t {
  kProblem,  ///< A job fails, or does not start.
  kWarning,  ///< A job may fail, or is slower than it could be.
  kOk,       ///< Examined, without a fault.
  kInfo      ///< Information only.
};
using enum State;

/// "problem", "warning", "ok" or "info".
[[nodiscard]] std::string_view to_string(State state);

/// The result of a check, which is a row of the report.
struct Finding {
  State state = kInfo;
  std::string text;         ///< State of the topic, or the fault.
  std::string advice = {};  ///< Remedy; may be empty without a fault.
  std::string topic = {};   ///< "secret", "port", ...; run_checks() sets it.

  static auto members(auto& self) {
    return std::tie(self.state, self.text, self.advice, self.topic);
  }

  friend bool operator==(const Finding&, const Finding&) = default;
};

using Findings = std::vector<Finding>;

// Return a list of one finding. run_checks() sets the topic of a check's findings.
[[nodiscard]] Findings problem(std::string text, std::string advice, std::string topic = {});
[[nodiscard]] Findings warning(std::string text, std::string advice, std::string topic = {});
[[nodiscard]] Findings ok(std::string text);
[[nodiscard]] Findings info(std::string text, std::string advice = {});

/// Returns `good`, or a warning with the text of `good` and `more` if `is_bad`.
[[nodiscard]] Findings warn_if(bool is_bad,
                               Findings good,
                               const std::string& more,
                               std::string advice);

/// Appends `more` to `findings`.
void append(Findings& findings, Findings more);

/// The findings of a rank.
struct LocalReport {
  Findings of_process;
  Findings of_node;  ///< Equal on every rank of the node.

  static auto members(auto& self) { return std::tie(self.of_process, self.of_node); }
};

/// Place of this process in the job that its environment describes; rank 0 of 1 outside a job.
struct JobPlace {
  bool is_in_job = false;  ///< This process was started as a rank, correctly or not.
  /// Result of partial_launch_info() if the variables are wrong.
  rendezvous::LaunchInfo launch_info = {};
  std::string error = {};  ///< The fault of the variables; empty if there is no fault.
  int local_world_size = 1;
  /// Variables of torchrun that are not set.
  std::vector<rendezvous::Variable> missing_variables = {};

  /// Returns true if this rank has peers to meet.
  [[nodiscard]] bool has_peers() const {
    return is_in_job && error.empty() && launch_info.world_size > 1;
  }

  /// Returns the host of the meeting place; empty if the variables have no host.
  [[nodiscard]] std::string meeting_host() const {
    return launch_info.master_addr.empty() ? "" : rendezvous::meeting_host(launch_info);
  }
};

/// Determines the place, as far as the variables are correct.
[[nodiscard]] JobPlace find_place(const Environment& environment);

/// Returns the readable part of an environment that rendezvous::find_launch_info() refuses:
/// address, port, and rank with world size. Each part is read as if the other parts were correct.
/// The unreadable parts are an empty address, port 0, and rank -1 of 1.
[[nodiscard]] rendezvous::LaunchInfo partial_launch_info(const Environment& environment);

/// Returns the settings, with the default in place of each wrong value.
[[nodiscard]] base::Config readable_config(const Environment& environment);

/// Availability of a port to a server that listens on all addresses of this machine.
struct PortState {
  bool is_free = true;
  std::string holder = {};  ///< Result of net::find_port_holder().
  std::string reason = {};  ///< System error for which the port is not free.
};

/// Tries to reserve `port` on all addresses, for IPv4 and IPv6, and frees the port at once.
[[nodiscard]] PortState probe_port(std::uint16_t port);

/// Returns the address from which this machine would send to a host, or std::nullopt without a
/// route. No packet is sent.
[[nodiscard]] std::optional<net::Address> find_source(const std::string& host);

/// State that the checks examine: variables, files, and results of system calls. read_machine()
/// reads this machine; tests use a made-up machine. The defaults describe a machine without faults.
struct Machine {
  Environment environment = [](const char*) { return std::optional<std::string>(); };
  std::filesystem::path root = "/";  ///< Root of the files in /proc, /sys, /etc and /dev.
  std::vector<std::string> setting_names = {};  ///< Variables that begin with UNISONO_.
  base::Config config = {};                     ///< Result of readable_config().
  JobPlace place = {};

  std::vector<net::Interface> interfaces = {};
  /// Result of find_source() for the meeting place, or for other networks without a meeting place.
  std::optional<net::Address> route_source = {};
  std::function<std::vector<net::Address>(const std::string& host)> resolve = {};
  std::function<PortState(std::uint16_t port)> probe_port = {};

  int usable_cores = 1;                         ///< Result of available_cores().
  int online_cores = 1;                         ///< Cores of the machine.
  std::string arena_error = {};                 ///< Error of creating an arena's memory, or empty.
  std::string single_copy_error = {};           ///< Error of process_vm_readv(), or empty.
  std::optional<std::uint64_t> shm_bytes = {};  ///< Size of /dev/shm, if mounted.
  rlimit address_space{.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
  rlimit locked_memory{.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
  rlimit open_files{.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
  std::chrono::system_clock::time_point now = {};
  bool is_clock_synchronized = false;

  /// Returns the contents of a file below `root`, 64 KiB at most, without trailing white space;
  /// std::nullopt if the file is unreadable.
  [[nodiscard]] std::optional<std::string> text(const std::filesystem::path& file) const;

  /// Returns the whole number at the start of a file.
  [[nodiscard]] std::optional<std::int64_t> number(const std::filesystem::path& file) const;

  /// Returns the rest of the first line of a file that begins with `name`, without white space at
  /// both ends.
  [[nodiscard]] std::optional<std::string> value(const std::filesystem::path& file,
                                                 std::string_view name) const;

  /// Returns the sorted paths below `root` that match a shell pattern.
  [[nodiscard]] std::vector<std::filesystem::path> glob(const std::filesystem::path& pattern) const;
};

/// Reads the state of this machine, and tries the system calls for arenas and single copies. No
/// effect remains.
[[nodiscard]] Machine read_machine(const Environment& environment);

/// Runs all checks of the table in checks.cpp, and sets the topics of the findings.
[[nodiscard]] LocalReport run_checks(const Machine& machine);

// The checks, a topic each; defined in check_launcher.cpp, check_network.cpp, check_system.cpp
// and check_gpu.cpp. A new check is a function and a row of the table.
using CheckFunction = Findings(const Machine& machine);
CheckFunction check_launcher, check_slurm, check_launcher_variables, check_settings, check_secret;
CheckFunction check_meeting_place, check_port, check_host, check_data, check_interfaces;
CheckFunction check_shared_memory, check_dev_shm, check_address_space, check_locked_memory;
CheckFunction check_open_files, check_cores, check_threads, check_numa, check_single_copy;
CheckFunction check_memory, check_huge_pages, check_kernel, check_container, check_clock;
CheckFunction check_gpus, check_libraries;

/// Returns the whole number in `text`, or std::nullopt for any other text.
[[nodiscard]] std::optional<std::int64_t> parse_whole(std::string_view text);

/// Formats a size: "1.5 GiB", "512 KiB", "12 bytes".
[[nodiscard]] std::string format_bytes(std::uint64_t n_bytes);

/// Returns "1 core", "2 cores".
[[nodiscard]] std::string count_of(std::int64_t n, std::string_view noun);

[[nodiscard]] std::string join(const std::vector<std::string>& parts, std::string_view separator);

}  // namespace unisono::cli::doctor
