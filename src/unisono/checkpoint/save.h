#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/checkpoint/tensor_box.h"
#include "unisono/comm/process_group.h"

namespace unisono::checkpoint {

/// What a rank has of a tensor, or all of it: the box's elements in row-major order.
struct TensorPart {
  TensorInfo tensor;  ///< The whole tensor.
  Box box;
  std::span<const std::byte> bytes;
};

struct SaveOptions {
  /// So many checkpoints are kept: the new one, and those of the highest steps below its. Those of
  /// higher steps, from which a training went back, stay. 0: all are kept.
  int keep_last = 3;
  /// How long a rank waits for the slowest one to write its file. Default: the group's.
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

/// Saves a checkpoint in the folder `root`, which all ranks reach, and returns its path: each rank
/// writes its parts into a file of its own, and rank 0 makes the checkpoint appear, whole, when all
/// are on the disk. A collective operation.
///
/// The ranks' parts make up each tensor: they overlap nowhere and leave nothing out; a rank has at
/// most one part of a tensor. PyTorch's HuggingFaceStorageReader reads the folder.
///
/// `common`: the tensors that divide_evenly() has dealt to the ranks, which must be the same on
/// all.
///
/// Throws Error on every rank, the same, which names the rank that failed: kInvalidArgument for
/// parts that make no sense, different steps or different common tensors, kCorruptData for parts
/// that overlap or leave a hole, kSystem for a full disk or a folder that can't be written. Older
/// checkpoints then stay as they are, and so does which is the latest.
std::string save_checkpoint(ProcessGroup& group,
                            const std::string& root,
                            std::int64_t step,
                            std::span<const TensorPart> parts,
                            const SaveOptions& options = {},
                            std::span<const TensorInfo> common = {});

/// Which part of each tensor a rank saves of what all ranks have: rows of large tensors, and
/// small ones whole, so that all ranks write about equally much. Nothing where it saves none of it.
[[nodiscard]] std::vector<std::optional<Box>> divide_evenly(std::span<const TensorInfo> tensors,
                                                            int rank,
                                                            int world_size);

}  // namespace unisono::checkpoint
