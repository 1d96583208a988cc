#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "unisono/checkpoint/save.h"
#include "unisono/comm/process_group.h"

namespace unisono::checkpoint {

/// Saves checkpoints of a training in one folder, at once or behind it.
///
/// All ranks of the group call the same members in the same order, on one thread each: all are
/// collective operations, but of a group of the saver's own, so that the training's go on beside
/// them.
class Saver {
 public:
  /// Throws Error as ProcessGroup::new_group() does.
  Saver(ProcessGroup& group, std::string root, const SaveOptions& options = {});

  /// Waits for what is being saved, and logs why it could not be, if no call has thrown that.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;
  Saver(Saver&&) = delete;
  Saver& operator=(Saver&&) = delete;

  /// save_checkpoint(), after wait().
  std::string save(std::int64_t step,
                   std::span<const TensorPart> parts,
                   std::span<const TensorInfo> common = {});

  /// Copies the parts and returns; a thread ("uni-save") saves the copy. First does wait().
  ///
  /// Throws what wait() throws. That a rank has no memory for the copy, or can't start the thread,
  /// the next call throws on all, as what the thread fails at.
  void save_async(std::int64_t step,
                  std::span<const TensorPart> parts,
                  std::span<const TensorInfo> common = {});

  /// Returns when what save_async() began is on the disk, or throws why it is not, once; then the
  /// earlier checkpoints are as they were.
  void wait();

 private:
  void copy(std::span<const TensorPart> parts, std::span<const TensorInfo> common);
  void start(std::int64_t step);

  std::shared_ptr<ProcessGroup> group_;
  std::string root_;
  SaveOptions options_;
  std::vector<TensorPart> parts_;  // what the thread saves
  std::vector<TensorInfo> common_;
  std::vector<std::vector<std::byte>> bytes_;  // that their spans are of
  std::thread thread_;
  // Of the thread, whose end is what makes it visible here.
  std::exception_ptr failure_;
};

}  // namespace unisono::checkpoint
