#pragma once

#include <cstdint>
#include <string>

namespace unisono::rendezvous {

/// Port of the store if MASTER_PORT is not set; the default of torchrun.
inline constexpr std::uint16_t kDefaultMasterPort = 29500;

/// Values that come from the variables of that name, as set by the user, torchrun or unisono run,
/// and not from another launcher, the program or an init_method.
struct FromVariables {
  bool rank = false;        ///< RANK.
  bool world_size = false;  ///< WORLD_SIZE.
  bool address = false;     ///< MASTER_ADDR.
};

/// Protocol of a launcher's key space.
enum class KeyValueSpaceKind { kNone, kPmi, kPmix };

/// Returns "PMI", "PMIx" or "none".
[[nodiscard]] const char* to_string(KeyValueSpaceKind kind) noexcept;

/// Access to the launcher's key space, through which the ranks of a job on several nodes can agree
/// on a secret and on a meeting point.
struct KeyValueSpaceAccess {
  KeyValueSpaceKind kind = KeyValueSpaceKind::kNone;
  int pmi_fd = -1;  ///< The connection, for kPmi.
  /// Why there is no key space although the job is on several nodes, and a remedy; otherwise "".
  std::string problem = {};
};

/// A process's rank and the meeting point of the ranks, as given by the launcher.
struct LaunchInfo {
  /// Host name or numeric address of rank 0's machine. Empty until publish_master_address() if no
  /// other source exists.
  std::string master_addr;
  std::uint16_t master_port = kDefaultMasterPort;  ///< 0 if rank 0 publishes the port too.
  int rank = 0;
  int world_size = 1;
  int local_rank = -1;  ///< -1 if unknown.
  /// The launcher serves the store (TORCHELASTIC_USE_AGENT_STORE), so rank 0 does not.
  bool uses_agent_store = false;
  /// All ranks are on this machine: the ranks meet on loopback, regardless of `master_addr`.
  bool is_on_one_node = false;
  /// Other ranks may use another address of rank 0 than `master_addr`.
  bool has_many_addresses = false;
  /// Name of the launcher that supplied missing values, e.g. "Slurm"; "" if no value was missing.
  std::string launcher = {};
  /// Name of the job from the launcher that has numbered its ranks; see launched_job(). Empty if
  /// the numbers come from another source: the ranks may then belong to several of the launcher's
  /// jobs.
  std::string job = {};
  /// The launcher's key space, for ranks on several nodes.
  KeyValueSpaceAccess key_value_space = {};
  /// The secret that rank 0 has published in the key space. A secret set by the user takes
  /// precedence.
  std::string secret = {};
  /// Origin of the store's address, for messages: "init_method tcp://10.0.0.1:29500". Empty if
  /// MASTER_ADDR and MASTER_PORT were the origin.
  std::string place_source = {};
  FromVariables from_variables = {};
  /// Origin of the values, for messages: "Slurm (SLURM_PROCID, SLURM_NTASKS, ...)".
  std::string origin = {};
  /// Name of the process's role in messages: "rank", or "launcher" for a process that starts ranks
  /// on its node.
  std::string process_name = "rank";
};

/// Returns the host where the ranks meet: loopback if all ranks are on a single machine.
[[nodiscard]] std::string meeting_host(const LaunchInfo& launch_info);

/// Returns true on rank 0, unless the launcher serves the store.
[[nodiscard]] bool serves_store(const LaunchInfo& launch_info);

/// Describes the store's address and its origin: "MASTER_ADDR=10.0.0.1, MASTER_PORT=29500", or
/// "10.0.0.1:29500 (init_method tcp://10.0.0.1:29500)".
[[nodiscard]] std::string describe_place(const LaunchInfo& launch_info);

}  // namespace unisono::rendezvous
