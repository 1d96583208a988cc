#pragma once

#include <optional>

#include "unisono/base/link_costs.h"
#include "unisono/engine/native/operation_context.h"

namespace unisono::engine {

/// Measures what passing data costs this rank: some meetings and copies in each node, and messages
/// between the lowest ranks of the nodes: about twenty round trips. Every rank of the group takes
/// part, after an operation that all of them called.
[[nodiscard]] LinkCosts measure_links(OperationContext& context);

/// What is slowest on any rank, the same on all of them; nothing if one has no costs. Every rank
/// takes part, too.
[[nodiscard]] std::optional<LinkCosts> agree_on_links(OperationContext& context,
                                                      const std::optional<LinkCosts>& mine);

}  // namespace unisono::engine
