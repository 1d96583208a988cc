#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "unisono/comm/object_work.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

namespace unisono {

// Operations on byte strings of any length, as programs use them for configuration and results.
// Every rank of the group calls the same one. Each is two operations of the group with nothing
// between them: the sizes, then the bytes. `timeout` is for each of the two. They throw what these
// throw; a rank that has no memory for what it is sent closes the group with kInternal.

/// Every rank's bytes, by rank.
[[nodiscard]] std::vector<std::string> all_gather_object(ProcessGroup& group,
                                                         std::string_view object,
                                                         const ObjectOptions& options = {});
[[nodiscard]] ObjectWork<std::vector<std::string>> all_gather_object_async(
    ProcessGroup& group, std::string object, const ObjectOptions& options = {});

/// Every rank's bytes, by rank, on the root; nothing on the others.
[[nodiscard]] std::vector<std::string> gather_object(ProcessGroup& group,
                                                     std::string_view object,
                                                     int root = 0,
                                                     const ObjectOptions& options = {});
[[nodiscard]] ObjectWork<std::vector<std::string>> gather_object_async(
    ProcessGroup& group, std::string object, int root = 0, const ObjectOptions& options = {});

/// The root's bytes.
[[nodiscard]] std::string broadcast_object(ProcessGroup& group,
                                           std::string_view object,
                                           int root = 0,
                                           const ObjectOptions& options = {});
[[nodiscard]] ObjectWork<std::string> broadcast_object_async(ProcessGroup& group,
                                                             std::string object,
                                                             int root = 0,
                                                             const ObjectOptions& options = {});

/// What the root has for this rank. The other ranks pass an empty list.
///
/// Throws Error(kInvalidArgument) on the root unless there is one for each rank.
[[nodiscard]] std::string scatter_object(ProcessGroup& group,
                                         const std::vector<std::string>& objects,
                                         int root = 0,
                                         const ObjectOptions& options = {});
[[nodiscard]] ObjectWork<std::string> scatter_object_async(ProcessGroup& group,
                                                           std::vector<std::string> objects,
                                                           int root = 0,
                                                           const ObjectOptions& options = {});

}  // namespace unisono
