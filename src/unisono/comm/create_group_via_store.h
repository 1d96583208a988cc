#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "unisono/comm/group.h"
#include "unisono/comm/group_lists.h"
#include "unisono/store/store.h"

namespace unisono::comm {

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
