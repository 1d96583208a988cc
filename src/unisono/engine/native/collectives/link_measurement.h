#pragma once

#include <optional>

#include "unisono/base/link_costs.h"
#include "unisono/engine/native/operation_context.h"

namespace unisono::engine {

/// Measures what passing data costs between this group's ranks: some meetings and copies in each
/// node, and messages between the lowest ranks of the nodes: about twenty round trips. Every rank
/// takes part, after an operation that all of them called, and all get the same: what is slowest on
/// any of them counts.
[[nodiscard]] LinkCosts measure_links(OperationContext& context);

/// The costs that all ranks were given, what is slowest on any of them; nothing if one was given
/// none. Every rank takes part, too.
[[nodiscard]] std::optional<LinkCosts> agree_on_links(OperationContext& context,
                                                      const std::optional<LinkCosts>& given);

}  // namespace unisono::engine
