#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/checkpoint/manifest.h"

namespace unisono::checkpoint {

// A folder of checkpoints: each is a folder "step-00000100" of its own, and the file "latest" has
// the name of the one to go on from. What ends in ".part" is being written, or was when its writer
// died; what ends in ".removed" is being removed. What ends in ".old" is being replaced: it is the
// checkpoint as long as no other has its name. One job at a time writes there.

inline constexpr const char* kLatestName = "latest";

/// "step-00000100".
[[nodiscard]] std::string checkpoint_name(std::int64_t step);

/// The step of such a name; nothing for other names.
[[nodiscard]] std::optional<std::int64_t> step_of(std::string_view name);

/// Where the checkpoint of this step lies: under its name or, while it is replaced where a file
/// system can't exchange names, under its name and ".old"; nothing where there is none.
[[nodiscard]] std::optional<std::string> find_checkpoint(const std::string& root,
                                                         std::int64_t step);

/// The steps of whose checkpoints there are folders, ascending; none where `root` is missing.
[[nodiscard]] std::vector<std::int64_t> list_steps(const std::string& root);

/// The manifest in a checkpoint's folder; nothing where there is none. Throws as decode_manifest().
[[nodiscard]] std::optional<Manifest> read_manifest(const std::string& checkpoint);

/// The folder in which a checkpoint of this step is written.
[[nodiscard]] std::string part_folder(const std::string& root, std::int64_t step);

/// Makes part_folder(), and `root` where it is missing; removes what earlier writers have left, but
/// a checkpoint that one died replacing has its name again.
/// Throws Error(kSystem).
void begin_checkpoint(const std::string& root, std::int64_t step);

/// Gives part_folder() the checkpoint's name, in place of an older one, and has "latest" name
/// it. Both are on the disk when it returns the checkpoint's path. Throws Error(kSystem).
std::string commit_checkpoint(const std::string& root, std::int64_t step);

/// Removes part_folder().
void discard_checkpoint(const std::string& root, std::int64_t step) noexcept;

/// Of the checkpoints up to the step `newest`, removes all but the `n_kept` of the highest steps.
/// Those of higher steps stay: a training that goes on from an earlier one has yet to reach them.
/// One that can't be removed stays: what can't be read is logged, not thrown.
void remove_older_checkpoints(const std::string& root, std::int64_t newest, int n_kept);

}  // namespace unisono::checkpoint
