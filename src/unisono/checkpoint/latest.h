#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "unisono/comm/process_group.h"

namespace unisono::checkpoint {

/// Options of latest_checkpoint(). Must be equal on all ranks.
struct LatestOptions {
  /// If the latest checkpoint is not complete, use another checkpoint; otherwise throw.
  bool allow_older = true;
  /// Verify the check sums of all bytes; otherwise check only that the files exist and have the
  /// right lengths.
  bool reads_bytes = true;
  /// Time limit for a rank to wait until the slowest rank has examined its part. Default: the
  /// group's timeout.
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

/// Returns the folder of the checkpoint from which a training continues; std::nullopt if there is
/// no checkpoint.
///
/// The preferred checkpoint is named by the file "latest"; without that file, the checkpoint with
/// the highest step is preferred. If the preferred checkpoint is not complete, the next candidates
/// are the lower steps in descending order, and then the higher steps. A log line names the skipped
/// checkpoints with the reasons, and the checkpoints with higher steps than the checkpoint in
/// "latest". A checkpoint is complete if the manifest and all shards exist and each block matches
/// its check sum.
///
/// Throws Error: kCorruptData, with all reasons, if there are checkpoints or the file "latest" but
/// no checkpoint is complete, or if the preferred checkpoint is not complete and
/// options.allow_older is false; kIncompatible for a checkpoint of a later release; kSystem for a
/// file that cannot be read.
[[nodiscard]] std::optional<std::string> latest_checkpoint(const std::string& root,
                                                           const LatestOptions& options = {});

/// Returns the same path on every rank: rank 0 lists the folder, and each rank examines a part of
/// the shards. A shard that its rank cannot find counts as missing. A collective operation; all
/// ranks throw the same error.
[[nodiscard]] std::optional<std::string> latest_checkpoint(ProcessGroup& group,
                                                           const std::string& root,
                                                           const LatestOptions& options = {});

/// Returns latest_checkpoint() if `path` is a folder of checkpoints, otherwise `path` itself.
[[nodiscard]] std::string resolve(const std::string& path, const LatestOptions& options = {});

/// Returns the result of rank 0 on every rank. A collective operation.
[[nodiscard]] std::string resolve(ProcessGroup& group,
                                  const std::string& path,
                                  const LatestOptions& options = {});

/// The content of the file "latest" in a folder of checkpoints.
struct LatestName {
  std::optional<std::int64_t> step;  ///< Step of the checkpoint that the file names.
  std::string problem;  ///< Reason why the file names no existing checkpoint; otherwise empty.
};

/// Reads the file "latest". Returns std::nullopt if the file does not exist. Throws Error(kSystem).
[[nodiscard]] std::optional<LatestName> read_latest(const std::string& root);

}  // namespace unisono::checkpoint
