#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "unisono/comm/process_group.h"

namespace unisono::python {

/// The ranks of a group to create, and the store in which they meet.
struct GroupPlan {
  /// The store's keys may have been used before by groups of the same ranks.
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;
  int world_size = 1;
  std::chrono::milliseconds timeout{};
  /// Ranks in the parent, by rank in the new group; empty for a group of all ranks.
  std::vector<int> parent_ranks = {};
  /// The group that the new group is split from; null for a job of its own.
  std::shared_ptr<ProcessGroup> parent = nullptr;
};

/// Meets the group's other ranks and returns the group. Throws Error.
[[nodiscard]] std::shared_ptr<ProcessGroup> connect(const GroupPlan& plan);

}  // namespace unisono::python
