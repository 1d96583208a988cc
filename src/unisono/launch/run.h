#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "unisono/launch/binding/bind_to.h"
#include "unisono/launch/output/stream_selection.h"
#include "unisono/launch/program.h"
#include "unisono/launch/spawn_ranks.h"

namespace unisono::launch {

namespace hosts {
class Uplink;
}  // namespace hosts

/// A job of several nodes, each with a `unisono run` of its own.
struct NodesOptions {
  int min_nodes = 1;
  int max_nodes = 1;
  int node_rank = -1;                                ///< -1: whichever it is given.
  int max_spares = std::numeric_limits<int>::max();  ///< Nodes beyond max_nodes that may wait.
  std::string host;                                  ///< Node 0's, as the others reach it.
  std::uint16_t port = 0;
  /// Whether this is node 0, where no node_rank says so. Nothing: where `host` is this machine and
  /// no other has the port.
  std::optional<bool> is_coordinator = {};
  std::chrono::milliseconds join_timeout = std::chrono::minutes(10);
  /// How long more than min_nodes are waited for.
  std::chrono::milliseconds last_call = std::chrono::seconds(30);
  std::chrono::milliseconds keep_alive_interval = std::chrono::seconds(5);
  int max_keep_alives = 3;  ///< Intervals without a word before a node counts as lost.
};

/// What `unisono run` was asked for.
struct RunOptions {
  int n_workers = 1;
  ProgramRequest program;
  std::string master_addr;        ///< Empty: this machine's loopback.
  std::uint16_t master_port = 0;  ///< 0: a free one.
  bool prefix = false;            ///< "[rank 3] " before each line of output.
  bool collapses = false;         ///< Equal lines of several ranks are shown as one.
  bool is_json = false;           ///< Each line of output, and of the launcher, is an object.
  std::string log_dir;            ///< Folder for rank-3.out, rank-3.err; empty: none.
  std::string rank_dir = {};      ///< Folder for rank-3, a rank's own folder; empty: none.
  /// What goes into files only, and what goes there, too; where neither says anything, all does.
  /// Without a folder one is made, and named.
  StreamSelection redirects = {};
  StreamSelection tee = {};
  std::optional<std::set<int>> shown_ranks = std::nullopt;  ///< Local ranks; nothing: all.
  /// The prefix of lines in torchrun's form, "[${role_name}${local_rank}]:"; empty: the usual one.
  std::string prefix_template = {};
  /// Time between asking the ranks to end (SIGTERM) and killing them.
  std::chrono::milliseconds grace = kDefaultGrace;
  /// Serves PyTorch's clients of this user on loopback, not only if the program is Python.
  bool allows_plain_clients = false;
  /// How often all ranks are started again after one of them has failed.
  int max_restarts = 0;
  /// A rank that others have waited for so long counts as failed; 0: none does.
  std::chrono::milliseconds stall_timeout{};
  std::string run_id = {};                        ///< Name of the job; empty: a random one.
  std::string role = "default";                   ///< ROLE_NAME of the ranks.
  std::vector<std::string> ignored_options = {};  ///< Were given, mean nothing, are named once.
  bool verbose = false;
  /// Nothing: one node, or as many as a launcher has started a `unisono run` on.
  std::optional<NodesOptions> nodes = std::nullopt;
  bool is_one_node = false;  ///< Whatever a launcher says.
  /// Names of torch.distributed's backends that shall mean Unisono in Python ranks, like
  /// "gloo=unisono,nccl=unisono".
  std::optional<std::string> backend_alias = std::nullopt;
  std::optional<BindTo> bind_to = std::nullopt;  ///< Nothing: to nothing.
  bool reports_bindings = false;                 ///< The launcher says on which cores ranks run.
};

/// Runs the program once per rank on this node and waits for the job's end.
///
/// Returns 0 when all ranks ended with 0, else the exit code of the rank that failed first (128 +
/// signal's number if a signal ended it), or 128 + the number of the signal that ended the
/// launcher. In every case no descendant of the ranks is left. With restarts, what counts is how
/// the ranks ended that were started last. All nodes of a job return the same, but for one that was
/// ended by itself.
///
/// Forks: to be called while this thread is the only one.
///
/// Throws ProgramError when there is no such program, Error when anything else is missing before
/// the start; then nothing was started.
int run(RunOptions options);

/// The same for a launcher that another one has started, which gets output and report.
int run(RunOptions options, hosts::Uplink& uplink);

/// Of a node.
inline constexpr int kMaxWorkers = 4096;

/// The number of ranks that "4", "auto", "cpu" or "gpu" mean on this machine.
///
/// Throws Error(kInvalidArgument) for any other text, and for "gpu" where there is none.
[[nodiscard]] int parse_worker_count(const std::string& text);

}  // namespace unisono::launch
