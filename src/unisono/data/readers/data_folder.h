#pragma once

#include <filesystem>
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

/// Names under which one file of a data set is published; the first one is for errors.
using Spellings = std::vector<std::string>;

struct FoundFiles {
  std::vector<std::string> paths;    ///< In the order of the data set's files.
  std::vector<std::string> missing;  ///< First spellings of the files that are not there.
};

/// Finds the files of a data set, plain or with ".gz" behind the name, in `folder`, in its folder
/// `usual`, or in another folder directly below. A file may lie in a folder of its own name, as
/// some programs unpack it.
///
/// Returns the first place with all files, or the place with the most. Throws
/// Error(kInvalidArgument) where several folders below have all of them; kSystem.
[[nodiscard]] FoundFiles find_data_files(const std::filesystem::path& folder,
                                         const std::string& usual,
                                         const std::vector<Spellings>& files);

}  // namespace unisono::data
