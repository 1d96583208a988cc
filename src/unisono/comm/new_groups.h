#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "unisono/comm/group_lists.h"
#include "unisono/comm/operation_queue.h"
#include "unisono/store/store.h"

namespace unisono::comm {

/// Makes a group for each list in `lists`, which must be equal on all ranks. A list contains ranks
/// of `parent`, in the order of their ranks in the new group.
///
/// All ranks of `parent` must call, as in any operation. Returns null for lists without this rank.
/// Costs two small all_gathers, whatever the number of groups, and no request to the store. Groups
/// may be made of several parents at the same time.
///
/// Throws Error: kInvalidArgument for an invalid list, kMismatch on all ranks if lists differ, and
/// the errors of all_gather.
[[nodiscard]] std::vector<std::unique_ptr<OperationQueue>> new_groups(
    OperationQueue& parent,
    std::span<const std::vector<int>> lists,
    std::optional<std::chrono::milliseconds> timeout);

/// Splits `parent` into groups of equal `colour`, each in the order of `key`, then of rank. Returns
/// null for a negative colour. Throws like new_groups().
[[nodiscard]] std::unique_ptr<OperationQueue> split(
    OperationQueue& parent, int colour, int key, std::optional<std::chrono::milliseconds> timeout);

/// Makes a group of some of `parent`'s ranks. Only these ranks call, all with the same list; they
/// meet in `store`, under keys that no other group has used. Each rank makes a few requests, and a
/// few more for each second of its wait.
///
/// Throws Error: kInvalidArgument for an invalid list or a list without this rank, kMismatch on all
/// ranks if lists differ, kTimeout with the missing ranks, kClosed if `parent` fails meanwhile, and
/// the errors of the stores.
[[nodiscard]] std::unique_ptr<OperationQueue> create_group_via_store(
    store::Store& store,
    OperationQueue& parent,
    const RankList& list,
    std::optional<std::chrono::milliseconds> timeout);

}  // namespace unisono::comm
