#pragma once

#include <cstdint>
#include <string>

#include "unisono/base/config.h"

namespace unisono::rendezvous {

inline constexpr std::uint16_t kDefaultMasterPort = 29500;

/// What env:// tells a process: which rank it is and where the ranks meet.
struct EnvAssignment {
  std::string master_addr;  ///< Host name or numeric address of rank 0's machine.
  std::uint16_t master_port = kDefaultMasterPort;
  int rank = 0;
  int world_size = 1;
  int local_rank = -1;  ///< -1 when LOCAL_RANK is not set.
  /// The launcher serves the store (TORCHELASTIC_USE_AGENT_STORE), so rank 0 does not.
  bool uses_agent_store = false;
};

/// Reads MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE, LOCAL_RANK; `rank` and `world_size` replace
/// the variables where they are not negative.
///
/// Throws Error(kInvalidArgument) with one message that names everything that is missing or wrong.
[[nodiscard]] EnvAssignment read_env(const Environment& environment,
                                     int rank = -1,
                                     int world_size = -1);

}  // namespace unisono::rendezvous
