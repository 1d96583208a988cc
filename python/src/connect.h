#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "unisono/comm/process_group.h"

namespace unisono::python {

/// Who makes a group, and where its ranks meet.
struct GroupPlan {
  /// Its keys are this group's, and those of groups made with the same ranks before it.
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;
  int world_size = 1;
  std::chrono::milliseconds timeout{};
  /// By rank in the new group; empty for a group of all.
  std::vector<int> parent_ranks = {};
  /// Of whose ranks the group is made; null for a job of its own.
  std::shared_ptr<ProcessGroup> parent = nullptr;
};

/// Meets the group's other ranks. Throws Error.
[[nodiscard]] std::shared_ptr<ProcessGroup> connect(const GroupPlan& plan);

}  // namespace unisono::python
