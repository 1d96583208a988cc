#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/comm/process_group.h"

namespace unisono::test {

/// Returns the backend of worlds without an explicit backend: "unisono", unless a program's main()
/// has set another.
[[nodiscard]] std::string& default_backend();

/// A world whose ranks are threads of the test's process.
struct World {
  /// `nodes[r]` names the node of rank r: ranks with equal names share memory, others use tcp.
  std::vector<std::string> nodes;
  std::map<std::string, std::string> environment = {};
  /// Additional variables of single ranks.
  std::map<int, std::map<std::string, std::string>> own_environment = {};
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  std::string backend = default_backend();
  std::map<int, std::string> own_backend = {};  ///< Backends of single ranks.

  /// Used by GoogleTest: prints the nodes' names in one word.
  friend void PrintTo(const World& world, std::ostream* out);
};

/// A world of one node.
[[nodiscard]] World one_node(int world_size);

/// Returns an environment with only these variables.
[[nodiscard]] Environment fake_environment(std::map<std::string, std::string> variables);

using RankMain = std::function<void(const std::shared_ptr<ProcessGroup>& group)>;

/// Starts the ranks, passes each rank its group, and destroys the groups at the end. After all
/// ranks have ended, throws the first exception of any rank.
void run_sharing_ranks(const World& world, const RankMain& rank_main);

/// Like run_sharing_ranks(), for ranks that need no ownership of the group.
void run_ranks(const World& world, const std::function<void(ProcessGroup& group)>& rank_main);

/// Like run_ranks(), for ranks that are expected to fail. Returns the message of each rank's
/// exception; "" after success.
[[nodiscard]] std::vector<std::string> errors_of_ranks(
    const World& world, const std::function<void(ProcessGroup& group)>& rank_main);

}  // namespace unisono::test
