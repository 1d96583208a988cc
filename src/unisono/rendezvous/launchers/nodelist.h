#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace unisono::rendezvous {

/// As many names as a list may stand for.
inline constexpr std::size_t kMaxNodes = 65'536;

/// Returns the names that a list of nodes stands for, as Slurm writes it, in the list's order:
/// "node[1-3,7],gpu05" is node1, node2, node3, node7, gpu05.
///
/// Zeros in front are kept ("n[09-11]" is n09, n10, n11), the last of several brackets of a name
/// counts fastest, and names that come twice stay.
///
/// Throws Error(kInvalidArgument) with the list and the place in it: brackets that don't match, a
/// range that is empty, reversed or no number, an empty name or list, more than kMaxNodes names.
[[nodiscard]] std::vector<std::string> expand_nodelist(std::string_view list);

/// The numbers of a list as of SLURM_TASKS_PER_NODE: 4, 4, 3 for "4(x2),3". Nothing where it is no
/// such list, a number is below 1, or there are more than kMaxNodes.
[[nodiscard]] std::optional<std::vector<int>> expand_counts(std::string_view text);

}  // namespace unisono::rendezvous
