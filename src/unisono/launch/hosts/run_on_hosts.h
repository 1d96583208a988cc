#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace unisono::launch::hosts {

/// A machine that takes part in a job.
struct Host {
  std::string name;                   ///< Name for the remote shell: "alpha", "me@alpha".
  std::optional<int> n_workers = {};  ///< Number of ranks, if the list has one.

  friend bool operator==(const Host&, const Host&) = default;
};

/// Parses a list of hosts. Formats:
///
/// - "alpha:4,beta:4,node[1-3]:2", with names in brackets as Slurm writes them,
/// - LSF's LSB_HOSTS and LSB_MCPU_HOSTS ("alpha alpha beta", "alpha 2 beta 1") and "2*alpha".
///
/// A repeated name adds its ranks to the first entry. If no name has a number and any name is
/// repeated, each occurrence stands for a rank.
///
/// Throws Error(kInvalidArgument), with the wrong part of the text, for an empty list, an
/// impossible name or address, a number of ranks outside 1 to 4096, or a list in which only some
/// hosts have a number.
[[nodiscard]] std::vector<Host> parse_hosts(std::string_view text);

/// Reads a file with one host per line, in the formats of Open MPI ("alpha slots=4 max_slots=8"),
/// MPICH ("alpha:4"), Slurm ("node[1-3]"), PBS and LSF (a line for each rank) and Grid Engine
/// ("alpha 4 all.q@alpha UNDEFINED"). "#" begins a comment.
///
/// Throws the errors of parse_hosts() with the file and the line, the errors of TextLines, and
/// Error(kSystem) if the file cannot be read.
[[nodiscard]] std::vector<Host> read_hostfile(const std::string& path);

/// A job on several machines that one command starts.
struct HostsRequest {
  std::vector<Host> hosts;
  /// Command that is called with a host and a command line as further arguments. Empty: ssh, for
  /// hosts that are not this machine.
  std::vector<std::string> remote_shell = {};
  std::vector<std::string> variables = {};  ///< "NAME=value" for the ranks.
  std::vector<std::string> command = {};    ///< Command line of `unisono` before `program`.
  std::vector<std::string> program = {};    ///< Program of the ranks and its arguments.
  std::string master_addr = {};             ///< Address of the rendezvous; empty: the first host.
  std::uint16_t master_port = 0;            ///< Port of the rendezvous; 0: a random port.
  std::chrono::milliseconds grace{};        ///< Same meaning as in RunOptions.
  bool is_json = false;                     ///< Same meaning as in RunOptions.
  int max_restarts = 0;                     ///< Same meaning as in RunOptions.
  /// Time for the launcher of a host to start. A lost launcher may be started again during the same
  /// time.
  std::chrono::milliseconds start_timeout = std::chrono::minutes(2);
};

/// Starts a launcher on each host, shows the output of the ranks, and waits for the job's end.
///
/// A lost launcher is started again until `max_restarts` is reached. The launcher of the first host
/// leads the job and is not restarted.
///
/// Returns the exit code of run() on the hosts. Returns 1, or the remote shell's exit code, if a
/// host could not be reached or is lost for good. In that case, and if this process is killed, all
/// other hosts end their ranks.
///
/// Throws ProgramError if the remote shell does not exist, Error for other missing parts of this
/// machine.
int run_on_hosts(const HostsRequest& request);

class Uplink;

/// First argument of a launcher that another launcher has started. main() then calls
/// serve_uplink().
inline constexpr const char* kHostArgument = "--unisono-host";

/// Receives over stdin the description of the run on this host, sets up the environment, and calls
/// `run` with the command line after `unisono`, "run" first. An exception of `run` is reported to
/// the other launcher. Returns the exit code.
///
/// Throws Error(kTimeout) if no launcher writes to stdin, and the errors of Uplink.
int serve_uplink(const std::function<int(Uplink& uplink, std::vector<std::string> arguments)>& run);

}  // namespace unisono::launch::hosts
