#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/rendezvous/methods/discovery.h"

namespace unisono::rendezvous {

/// A process that is to become a rank, or that starts ranks on the node.
struct RendezvousRequest {
  std::string init_method = "env://";
  GivenRank given = {};
  /// For the meeting, and the default for operations. Default: the configuration's.
  std::optional<std::chrono::milliseconds> timeout = {};
  Environment environment = process_environment();
  /// The settings of `environment`. std::nullopt: read from there.
  std::optional<ParsedConfig> settings = {};
  std::string process_name = "rank";  ///< See LaunchInfo.
};

/// Information of a rank before the meeting at the store.
struct RendezvousInfo {
  base::Config config;
  std::chrono::milliseconds timeout{};
  Deadline deadline = Deadline::never();  ///< Deadline of the meeting.
  Discovered discovered;                  ///< Keep the presence alive until all ranks have met.
};

/// Determines this process's rank and the meeting point, for any method; see find_launch_info(),
/// find_discovery() and publish_master_address(). Rank 0 logs the launcher unless the user has
/// given all values, e.g. by RANK.
///
/// Throws Error(kInvalidArgument) with a single message that names all invalid variables, and the
/// errors of the discovery and of publish_master_address().
[[nodiscard]] RendezvousInfo resolve_rendezvous(const RendezvousRequest& request);

/// Returns the timeout of the program, or else the configuration's.
///
/// Throws Error(kInvalidArgument) unless the timeout is positive.
[[nodiscard]] std::chrono::milliseconds choose_timeout(
    std::optional<std::chrono::milliseconds> chosen, const base::Config& config);

}  // namespace unisono::rendezvous
