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

/// The backend of worlds that don't say: "unisono", unless a program's main() has set another.
[[nodiscard]] std::string& default_backend();

/// A world whose ranks are threads of the test's process.
struct World {
  /// `nodes[r]` names the node of rank r: ranks with equal names share memory, others use tcp.
  std::vector<std::string> nodes;
  std::map<std::string, std::string> environment = {};
  /// Besides that of single ranks.
  std::map<int, std::map<std::string, std::string>> own_environment = {};
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  std::string backend = default_backend();
  std::map<int, std::string> own_backend = {};  ///< Of single ranks.

  /// For GoogleTest: the nodes' names in one word.
  friend void PrintTo(const World& world, std::ostream* out);
};

/// A world of one node.
[[nodiscard]] World one_node(int world_size);

/// An environment made of these variables alone.
[[nodiscard]] Environment fake_environment(std::map<std::string, std::string> variables);

using RankMain = std::function<void(const std::shared_ptr<ProcessGroup>& group)>;

/// Starts the ranks, hands each its group, destroys the groups at the end. Throws the first
/// exception that a rank threw, after all have ended.
void run_sharing_ranks(const World& world, const RankMain& rank_main);

/// The same for ranks that need no share in the group.
void run_ranks(const World& world, const std::function<void(ProcessGroup& group)>& rank_main);

/// The same for ranks that are expected to fail: the text of each rank's exception, "" for none.
[[nodiscard]] std::vector<std::string> errors_of_ranks(
    const World& world, const std::function<void(ProcessGroup& group)>& rank_main);

}  // namespace unisono::test
