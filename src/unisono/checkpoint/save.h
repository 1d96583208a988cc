#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "unisono/checkpoint/tensor_box.h"
#include "unisono/comm/process_group.h"

namespace unisono::checkpoint {

/// Executes `step` on this rank and returns the results of all ranks, indexed by rank. A collective
/// operation.
///
/// If a `step` throws, all ranks throw the same Error: that of the first failed rank, with the rank
/// in the message.
[[nodiscard]] std::vector<std::string> do_on_all(ProcessGroup& group,
                                                 std::optional<std::chrono::milliseconds> timeout,
                                                 const std::function<std::string()>& step);

/// The part of a tensor that a rank has, possibly all of it: the elements of the box in row-major
/// order.
struct TensorPart {
  TensorInfo tensor;  ///< The whole tensor.
  Box box;
  std::span<const std::byte> bytes;
  /// Memory of `bytes`, if it is a snapshot that no one changes: save_async() keeps the owner
  /// instead of a copy.
  std::shared_ptr<const void> snapshot = {};
};

/// Options of save_checkpoint().
struct SaveOptions {
  /// Number of checkpoints to keep: the new checkpoint, and the checkpoints with the highest steps
  /// below the new checkpoint's step. Checkpoints with higher steps, from a training that later
  /// continued from an earlier step, stay. 0 keeps all checkpoints.
  int keep_last = 3;
  /// Time limit for a rank to wait until the slowest rank has written its file. Default: the
  /// group's timeout.
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

/// Saves a checkpoint in the folder `root`, which all ranks must share, and returns the
/// checkpoint's path. Each rank writes a separate file. When all files are on disk, rank 0 makes
/// the complete checkpoint visible. A collective operation.
///
/// The parts of all ranks must cover each tensor without overlaps and gaps. A rank has at most one
/// part of a tensor. PyTorch's HuggingFaceStorageReader can read the folder.
///
/// `common` are the tensors that divide_evenly() has distributed to the ranks. `common` must be
/// equal on all ranks.
///
/// On failure, all ranks throw the same Error, which names the failed rank: kInvalidArgument for
/// invalid parts, different steps or different common tensors, kCorruptData for parts that overlap
/// or leave a gap, kSystem for a full disk or a folder that cannot be written. Older checkpoints
/// and the file "latest" are then unchanged.
std::string save_checkpoint(ProcessGroup& group,
                            const std::string& root,
                            std::int64_t step,
                            std::span<const TensorPart> parts,
                            const SaveOptions& options = {},
                            std::span<const TensorInfo> common = {});

/// Distributes tensors that all ranks have, so that all ranks write about the same number of bytes:
/// rows of large tensors, and complete small tensors. Returns the box of each tensor that `rank`
/// saves; std::nullopt for tensors that other ranks save.
[[nodiscard]] std::vector<std::optional<Box>> divide_evenly(std::span<const TensorInfo> tensors,
                                                            int rank,
                                                            int world_size);

/// Saves the checkpoints of a training in one folder, synchronously or in the background.
///
/// All ranks of the group call the same members in the same order. The members are collective
/// operations on a group that the saver creates, so that operations of the training's group can run
/// concurrently. On each rank, one thread calls the members. A thread "uni-save" runs from
/// save_async() until the next call.
class Saver {
 public:
  /// Creates the saver's group. Throws the errors of ProcessGroup::new_group().
  Saver(ProcessGroup& group, std::string root, const SaveOptions& options = {});

  /// Waits for the pending save. Logs an error that no call has thrown.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;
  Saver(Saver&&) = delete;
  Saver& operator=(Saver&&) = delete;

  /// Calls wait(), then save_checkpoint().
  std::string save(std::int64_t step,
                   std::span<const TensorPart> parts,
                   std::span<const TensorInfo> common = {});

  /// Calls wait(), copies the parts that are no snapshots, and returns; the thread "uni-save" saves
  /// the copy.
  ///
  /// Throws the errors of wait(). If a rank has no memory for the copy or cannot start the thread,
  /// the next call throws that error on all ranks.
  void save_async(std::int64_t step,
                  std::span<const TensorPart> parts,
                  std::span<const TensorInfo> common = {});

  /// Waits until the checkpoint of save_async() is on disk. Throws the error of a failed save once;
  /// the earlier checkpoints are then unchanged.
  void wait();

 private:
  void copy(std::span<const TensorPart> parts, std::span<const TensorInfo> common);
  void start(std::int64_t step);

  std::shared_ptr<ProcessGroup> group_;
  std::string root_;
  SaveOptions options_;
  std::vector<TensorPart> parts_;  // parts that the thread saves
  std::vector<TensorInfo> common_;
  std::vector<std::vector<std::byte>> bytes_;  // memory of the parts' spans
  std::thread thread_;
  // Written by the thread. Joining the thread makes the value visible.
  std::exception_ptr failure_;
};

}  // namespace unisono::checkpoint
