#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/rendezvous/methods/discovery.h"

namespace unisono::rendezvous {

/// A process that wants to be a rank, or to start ranks on its node.
struct RendezvousRequest {
  std::string init_method = "env://";
  GivenRank given = {};
  /// For meeting the others, and for operations that are given none. Default: the configuration's.
  std::optional<std::chrono::milliseconds> timeout = {};
  Environment environment = process_environment();
  std::string process_name = "rank";  ///< See LaunchInfo.
};

/// What a rank knows before it meets the others at the store.
struct RendezvousInfo {
  Config config;
  std::chrono::milliseconds timeout{};
  Deadline deadline = Deadline::never();  ///< For meeting the others.
  Discovered discovered;                  ///< Keep its presence until all have met.
};

/// Which rank this process is and where the ranks meet, by whatever method; see find_launch_info(),
/// find_discovery() and publish_master_address(). Rank 0 says by whom the ranks were started, where
/// the program's user did not say it by RANK and the like.
///
/// Throws Error: kInvalidArgument with one message that names every wrong variable; as discovery
/// and publish_master_address() do.
[[nodiscard]] RendezvousInfo resolve_rendezvous(const RendezvousRequest& request);

/// The timeout that a program has chosen, or the configuration's.
///
/// Throws Error(kInvalidArgument) unless it is more than nothing.
[[nodiscard]] std::chrono::milliseconds choose_timeout(
    std::optional<std::chrono::milliseconds> chosen, const Config& config);

}  // namespace unisono::rendezvous
