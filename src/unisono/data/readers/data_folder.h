#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/left_behind.h"

namespace unisono::data {

/// Throws Error unless `folder` is a folder: kNotFound, with `hint` where to get it from; kSystem;
/// kInvalidArgument when it is something else.
void check_data_folder(const std::string& folder, const std::string& hint);

/// Names of the entries of a folder, sorted. A link is what it leads to.
struct FolderEntries {
  std::vector<std::string> folders;
  std::vector<std::string> others;
};

/// Lists folder `below` ("" or "a/b") of `root`. Entries that are is_left_behind() are counted in
/// `left_out` only, by their path below `root`. Throws Error(kSystem).
[[nodiscard]] FolderEntries list_folder(const std::filesystem::path& root,
                                        const std::string& below,
                                        LeftOut& left_out);

/// The path of file `name` in a folder, or else of `name`.gz; nothing if neither is there.
[[nodiscard]] std::optional<std::string> find_plain_or_gzip(const std::filesystem::path& folder,
                                                            const std::string& name);

}  // namespace unisono::data
