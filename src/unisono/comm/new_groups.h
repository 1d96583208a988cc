#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "unisono/comm/group.h"
#include "unisono/comm/group_lists.h"
#include "unisono/store/store.h"

namespace unisono::comm {

/// Makes groups of a group's ranks: one for each list in `lists`, which is alike on all ranks. A
/// list has ranks of `parent`, in the order of their ranks in the new group.
///
/// All ranks of `parent` take part, as in one of its operations; returns null for lists without
/// this rank. Two small all_gathers, however many groups; no request to the store. Groups may be
/// made of several parents at the same time.
///
/// Throws Error: kInvalidArgument for a wrong list, kMismatch on all ranks where lists differ, and
/// what all_gather throws.
[[nodiscard]] std::vector<std::unique_ptr<Group>> new_groups(
    Group& parent,
    std::span<const std::vector<int>> lists,
    std::optional<std::chrono::milliseconds> timeout);

/// Parts `parent` into groups of equal `colour`, each in the order of `key`, then of rank. Returns
/// null for a negative colour. Throws as new_groups().
[[nodiscard]] std::unique_ptr<Group> split(Group& parent,
                                           int colour,
                                           int key,
                                           std::optional<std::chrono::milliseconds> timeout);

/// The group of some of `parent`'s ranks, which alone call this, with the same list: they meet in
/// `store`, in keys that no other group has used. Each makes a few requests, and a few more for
/// each second that it waits.
///
/// Throws Error: kInvalidArgument for a wrong list or one without this rank, kMismatch on all ranks
/// where lists differ, kTimeout with those that have not come, kClosed when `parent` fails
/// meanwhile, and what the stores throw.
[[nodiscard]] std::unique_ptr<Group> create_group_via_store(
    store::Store& store,
    Group& parent,
    const RankList& list,
    std::optional<std::chrono::milliseconds> timeout);

}  // namespace unisono::comm
