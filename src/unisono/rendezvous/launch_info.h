#pragma once

#include <cstdint>
#include <string>

namespace unisono::rendezvous {

inline constexpr std::uint16_t kDefaultMasterPort = 29500;

/// What a rank knows from the variables of that name that the user, torchrun or unisono run has
/// set, and not from another launcher's, the program or an init_method.
struct FromVariables {
  bool rank = false;        ///< RANK.
  bool world_size = false;  ///< WORLD_SIZE.
  bool address = false;     ///< MASTER_ADDR.
};

enum class KeyValueSpaceKind { kNone, kPmi, kPmix };

/// "PMI", "PMIx", "none".
[[nodiscard]] const char* to_string(KeyValueSpaceKind kind) noexcept;

/// The launcher's key space through which the ranks of a job on several nodes can agree on a
/// secret and on a place to meet.
struct KeyValueSpaceAccess {
  KeyValueSpaceKind kind = KeyValueSpaceKind::kNone;
  int pmi_fd = -1;  ///< The connection, of kPmi.
  /// Why there is none, and how to get one, where the job is on several nodes; else empty.
  std::string problem = {};
};

/// What a launcher tells a process: which rank it is and where the ranks meet.
struct LaunchInfo {
  /// Host name or numeric address of rank 0's machine. Empty until rank 0 has told it in the
  /// launcher's key space, where nobody else does; see publish_master_address().
  std::string master_addr;
  std::uint16_t master_port = kDefaultMasterPort;  ///< 0 where rank 0 tells it, too.
  int rank = 0;
  int world_size = 1;
  int local_rank = -1;  ///< -1 when it is not known.
  /// The launcher serves the store (TORCHELASTIC_USE_AGENT_STORE), so rank 0 does not.
  bool uses_agent_store = false;
  /// All ranks are on this machine: they meet on its loopback, whatever `master_addr` is.
  bool is_on_one_node = false;
  /// Others may know rank 0 by another of its addresses than `master_addr`.
  bool has_many_addresses = false;
  /// Whose variables filled in what was not given: "Slurm", ...; empty where all was given.
  std::string launcher = {};
  /// The job, as the launcher that has numbered its ranks tells it from others; see launched_job().
  /// Empty where somebody else has numbered them: then they may be of several of its jobs.
  std::string job = {};
  /// What the launcher has for ranks that are on several nodes.
  KeyValueSpaceAccess key_value_space = {};
  /// The one that rank 0 has told in the key space, which settings of the user replace.
  std::string secret = {};
  /// Who gave the store's address, for messages: "init_method tcp://10.0.0.1:29500"; empty where
  /// MASTER_ADDR and MASTER_PORT did.
  std::string place_source = {};
  FromVariables from_variables = {};
  /// Where it came from, for messages: "Slurm (SLURM_PROCID, SLURM_NTASKS, ...)".
  std::string origin = {};
  /// What messages call the process: "rank", or "launcher" for one that starts ranks on its node.
  std::string process_name = "rank";
};

/// The host where the ranks meet: the machine's loopback where all are on it.
[[nodiscard]] std::string meeting_host(const LaunchInfo& launch_info);

/// True on rank 0, unless the launcher serves the store.
[[nodiscard]] bool serves_store(const LaunchInfo& launch_info);

/// Where the store is, and who says so: "MASTER_ADDR=10.0.0.1, MASTER_PORT=29500", or
/// "10.0.0.1:29500 (init_method tcp://10.0.0.1:29500)".
[[nodiscard]] std::string describe_place(const LaunchInfo& launch_info);

}  // namespace unisono::rendezvous
