#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "unisono/launch/binding/share_cores.h"
#include "unisono/launch/output/stream_selection.h"
#include "unisono/launch/program.h"
#include "unisono/launch/spawn_ranks.h"

namespace unisono::launch {

namespace hosts {
class Uplink;
}  // namespace hosts

/// Settings of a job of several nodes, each with its own `unisono run`.
struct NodesOptions {
  int min_nodes = 1;
  int max_nodes = 1;
  int node_rank = -1;  ///< -1: assigned by the coordinator.
  /// Largest number of waiting nodes beyond max_nodes.
  int max_spares = std::numeric_limits<int>::max();
  std::string host;  ///< Host of node 0, as the other nodes reach it.
  std::uint16_t port = 0;
  /// This node is node 0, if node_rank does not decide that. std::nullopt: this node is node 0 if
  /// `host` is this machine and the port is free.
  std::optional<bool> is_coordinator = {};
  std::chrono::milliseconds join_timeout = std::chrono::minutes(10);
  /// Time to wait for more than min_nodes.
  std::chrono::milliseconds last_call = std::chrono::seconds(30);
  std::chrono::milliseconds keep_alive_interval = std::chrono::seconds(5);
  int max_keep_alives = 3;  ///< Intervals without a message after which a node counts as lost.
};

/// Options of `unisono run`.
struct RunOptions {
  int n_workers = 1;
  ProgramRequest program;
  std::string master_addr;        ///< Empty: this machine's loopback.
  std::uint16_t master_port = 0;  ///< 0: a free port.
  bool prefix = false;            ///< "[rank 3] " before each line of output.
  bool collapses = false;         ///< Equal lines of several ranks are shown as one.
  bool is_json = false;           ///< Each line of output, and of the launcher, is a JSON object.
  std::string log_dir;            ///< Folder for rank-3.out, rank-3.err; empty: no log files.
  std::string rank_dir = {};      ///< Folder for rank-3, a rank's own folder; empty: no folders.
  /// `redirects` has the streams that go to files only, `tee` the streams that go to files and are
  /// shown. If both are empty, all streams are shown, and go to the files of `log_dir` if that is
  /// set. A selection without `log_dir` creates a temporary folder, and a message shows its path.
  StreamSelection redirects = {};
  StreamSelection tee = {};
  std::optional<std::set<int>> shown_ranks = std::nullopt;  ///< Local ranks; std::nullopt: all.
  /// Prefix of lines in torchrun's form, "[${role_name}${local_rank}]:"; empty: the default prefix.
  std::string prefix_template = {};
  /// Time between asking the ranks to end (SIGTERM) and killing them.
  std::chrono::milliseconds grace = kDefaultGrace;
  /// The store serves PyTorch's clients of this user on loopback even if the program is not Python.
  bool allows_plain_clients = false;
  /// Number of times that all ranks are restarted after a rank has failed.
  int max_restarts = 0;
  /// A rank that other ranks have waited for during this time counts as failed; 0: no limit.
  std::chrono::milliseconds stall_timeout{};
  std::string run_id = {};       ///< Name of the job; empty: a random name.
  std::string role = "default";  ///< ROLE_NAME of the ranks.
  /// Options that have no effect; a message lists them.
  std::vector<std::string> ignored_options = {};
  bool verbose = false;
  /// std::nullopt: one node, or the nodes on which another launcher has started a `unisono run`.
  std::optional<NodesOptions> nodes = std::nullopt;
  bool is_one_node = false;  ///< One node, even if another launcher has started several processes.
  /// Backend names of torch.distributed that mean Unisono in Python ranks, such as
  /// "gloo=unisono,nccl=unisono".
  std::optional<std::string> backend_alias = std::nullopt;
  std::optional<BindTo> bind_to = std::nullopt;  ///< No value: bind_ranks() decides.
  bool reports_bindings = false;                 ///< The launcher reports each rank's cores.
};

/// Runs the program once per rank on this node and waits for the job's end.
///
/// Returns 0 if all ranks ended with 0; otherwise the exit code of the rank that failed first (128
/// + the number of the signal that ended it), or 128 + the number of the signal that ended the
/// launcher. No descendant of a rank is left in any case. With restarts, the last generation
/// decides. All nodes of a job return the same code, except a node that was ended individually.
///
/// Forks, so the calling thread must be the only thread of the process.
///
/// Throws ProgramError if the program does not exist, and Error for other problems before the
/// start. No process was started then.
int run(RunOptions options);

/// Overload for a launcher that another launcher has started: output and report go to `uplink`.
int run(RunOptions options, hosts::Uplink& uplink);

/// Limit of a node.
inline constexpr int kMaxWorkers = 4096;

/// Returns the number of ranks for "4", "auto", "cpu" or "gpu" on this machine.
///
/// Throws Error(kInvalidArgument) for any other text, and for "gpu" if no GPU is visible.
[[nodiscard]] int parse_worker_count(const std::string& text);

/// Throws Error(kInvalidArgument) if the hard limit of file descriptors is too low for a launcher
/// of `n_workers` ranks.
void check_descriptor_limit(int n_workers);

/// Raises the limit of file descriptors to the hard limit. The launcher calls this function after
/// it has started the guardian, so that the ranks keep the limit of the user.
void raise_descriptor_limit();

}  // namespace unisono::launch
