#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/checkpoint/manifest.h"

namespace unisono::checkpoint {

// A folder of checkpoints. Each checkpoint is a folder such as "step-00000100"; the file "latest"
// contains the name of the checkpoint from which to continue.
//
// - "*.part" is a checkpoint that is being written, or the remains of a killed writer.
// - "*.removed" is a checkpoint that is being removed.
// - "*.old" is a checkpoint that is being replaced. The checkpoint remains valid until another
//   folder has its name.
//
// One job at a time may write to the folder.

inline constexpr const char* kLatestName = "latest";

/// Returns the folder name of a step, such as "step-00000100".
[[nodiscard]] std::string checkpoint_name(std::int64_t step);

/// Returns the step of a folder name; std::nullopt for other names.
[[nodiscard]] std::optional<std::int64_t> step_of(std::string_view name);

/// Returns the path of the checkpoint of this step; std::nullopt if it does not exist. While a
/// checkpoint is replaced on a file system that cannot exchange names, the path ends in ".old".
[[nodiscard]] std::optional<std::string> find_checkpoint(const std::string& root,
                                                         std::int64_t step);

/// Returns the steps of all checkpoint folders, ascending; empty if `root` does not exist.
[[nodiscard]] std::vector<std::int64_t> list_steps(const std::string& root);

/// Returns the manifest of a checkpoint; std::nullopt if there is none. Throws the errors of
/// decode_manifest().
[[nodiscard]] std::optional<Manifest> read_manifest(const std::string& checkpoint);

/// Returns the folder in which a checkpoint of this step is written.
[[nodiscard]] std::string part_folder(const std::string& root, std::int64_t step);

/// Creates part_folder(), and `root` if it is missing. Removes the remains of earlier writers; a
/// checkpoint that a killed writer was replacing gets its name back. Throws Error(kSystem).
void begin_checkpoint(const std::string& root, std::int64_t step);

/// Renames part_folder() to the checkpoint's name, replacing an older checkpoint of that name, and
/// writes the name to "latest". Both are on disk on return. Returns the checkpoint's path. Throws
/// Error(kSystem).
std::string commit_checkpoint(const std::string& root, std::int64_t step);

/// Removes part_folder().
void discard_checkpoint(const std::string& root, std::int64_t step) noexcept;

/// Removes all checkpoints up to the step `newest` except the `n_kept` with the highest steps.
/// Checkpoints with higher steps stay, because a training that continues from an earlier checkpoint
/// has not reached them yet. Errors do not throw: a folder that cannot be read is logged, and a
/// checkpoint that cannot be removed stays.
void remove_older_checkpoints(const std::string& root, std::int64_t newest, int n_kept);

}  // namespace unisono::checkpoint
