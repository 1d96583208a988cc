#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "unisono/comm/process_group.h"

namespace unisono::checkpoint {

struct LatestOptions {
  /// Take another checkpoint where the latest one is not whole; otherwise throw.
  bool allow_older = true;
  /// Compare the check sums of all bytes; otherwise only find the files and compare their lengths.
  bool reads_bytes = true;
  /// How long a rank waits until the slowest one has examined its share. Default: the group's.
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

/// The folder of the checkpoint that a training goes on from; nothing where no checkpoint is.
///
/// This is the checkpoint that the file "latest" names or, without that file, the one of the
/// highest step. If it is not whole, the next one is taken: of the lower steps the highest, and
/// only then of the higher steps. A line of the log names the checkpoints that were passed over and
/// why, and those of higher steps than the one that "latest" names. Whole means that the manifest
/// and all shards are there and that each block has its check sum.
///
/// Throws Error: kCorruptData, with all reasons, if there are checkpoints or "latest" and none is
/// whole, or if the latest one is not and options.allow_older is false; kIncompatible for a
/// checkpoint of a later release; kSystem for a file that cannot be read.
[[nodiscard]] std::optional<std::string> latest_checkpoint(const std::string& root,
                                                           const LatestOptions& options = {});

/// The same path on every rank, as rank 0 lists the folder: a collective operation. Each rank
/// examines a share of the shards; a shard that its rank cannot find is missing. All ranks throw
/// the same error.
[[nodiscard]] std::optional<std::string> latest_checkpoint(ProcessGroup& group,
                                                           const std::string& root,
                                                           const LatestOptions& options = {});

/// `path`, or latest_checkpoint() in it if `path` is a folder of checkpoints.
[[nodiscard]] std::string resolve(const std::string& path, const LatestOptions& options = {});

/// The same on every rank, as rank 0 finds `path`: a collective operation.
[[nodiscard]] std::string resolve(ProcessGroup& group,
                                  const std::string& path,
                                  const LatestOptions& options = {});

/// The content of the file "latest" in a folder of checkpoints.
struct LatestName {
  std::optional<std::int64_t> step;  ///< Of the checkpoint that it names.
  std::string problem;               ///< Why it names no checkpoint that is there, or empty.
};

/// Nothing without that file. Throws Error(kSystem).
[[nodiscard]] std::optional<LatestName> read_latest(const std::string& root);

}  // namespace unisono::checkpoint
