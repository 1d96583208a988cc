#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/deadline.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/mpi/library.h"
#include "unisono/engine/mpi/module.h"

namespace unisono::engine::mpi {

/// Memory that is reused by consecutive operations.
class Scratch {
 public:
  /// Returns at least `n_bytes` bytes of undefined content, valid until the next call.
  [[nodiscard]] std::byte* take(std::int64_t n_bytes);

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::int64_t n_bytes_ = 0;
};

/// The blocks of an operation's input or output in the form of an MPI: a single memory, with
/// offsets. Contiguous blocks are used in place; other blocks are copied. Owned by MpiOperation;
/// used only by the thread that executes an operation.
class MpiBlocks {
 public:
  /// Sets the blocks to read from, which must outlive this object's use of the blocks.
  void set_source(std::span<const Buffer> blocks);

  /// Sets the blocks to write to. With `is_apart`, results go to separate memory even if the blocks
  /// are contiguous.
  void set_target(std::span<const Buffer> blocks, bool is_apart);

  /// Copies the results to the target's blocks, if they are in separate memory.
  void deliver() const;

  [[nodiscard]] std::byte* data() const { return data_; }

  [[nodiscard]] const std::vector<int>& counts() const { return counts_; }

  [[nodiscard]] const std::vector<int>& offsets() const { return offsets_; }

  /// Returns whether the MPI works on separate memory.
  [[nodiscard]] bool is_copy() const { return is_copy_; }

 private:
  void set(std::span<const Buffer> blocks, bool is_apart);

  std::span<const Buffer> blocks_;
  std::byte* data_ = nullptr;
  bool is_copy_ = false;
  std::vector<int> counts_;
  std::vector<int> offsets_;
  Scratch scratch_;
};

/// Returns whether all blocks have the same number of elements.
[[nodiscard]] bool are_equal(std::span<const Buffer> blocks);

/// State shared by all operations of a group.
struct MpiGroup {
  std::shared_ptr<MpiLibrary> library;
  std::vector<int> world_ranks;  ///< The group's ranks in the MPI's world.
  int rank = 0;                  ///< This rank in the group.
  bool is_on_one_node = true;
  Handle communicator = {};
  bool has_communicator = false;  ///< Made by the first operation.
};

/// An operation as executed by the MPI, in stages: a comparison of all ranks' calls, if the group
/// has several nodes; the exchange of block sizes that only pairs of ranks have; the operation
/// itself.
///
/// Owned by MpiEngine, which reuses the object and its memory. Used only by the thread that
/// executes an operation.
class MpiOperation final : public SupervisedOperation {
 public:
  explicit MpiOperation(MpiGroup& group) : group_(group) {}

  [[nodiscard]] bool meets_all() const override { return !group_.has_communicator; }

  void begin(const Operation& operation, std::uint32_t group) override;
  [[nodiscard]] bool advance() override;

  /// Returns whether the operation has begun on this rank and is not done. The MPI may then use the
  /// operation's memory, and other ranks may wait without end.
  [[nodiscard]] bool has_begun() const { return has_begun_; }

  /// Keeps the operation's memory permanently.
  void keep(const Operation& operation) { kept_ = operation; }

 private:
  enum class Stage : std::uint8_t { kComparing, kExchangingCounts, kRunning, kDiffering };

  void start(const CollectiveCall& call, Stage stage);
  void compare();
  void check_compared();
  void prepare();
  void run_or_exchange_counts();
  void exchange_counts();
  void check_counts() const;
  void run();
  void finish();

  void prepare_reduce_scatter();
  void prepare_blocks();
  void divide() const;

  MpiGroup& group_;
  const Operation* operation_ = nullptr;
  CollectiveCall call_ = {};
  Stage stage_ = Stage::kRunning;
  Handle request_ = {};
  bool has_begun_ = false;
  std::array<std::uint64_t, 2> compared_ = {};
  Deadline differing_until_ = Deadline::never();
  std::vector<int> their_counts_;
  MpiBlocks sources_;
  MpiBlocks targets_;
  std::array<Buffer, 1> own_ = {};  // This rank's result, if written to separate memory first.
  Operation kept_ = {};
};

}  // namespace unisono::engine::mpi
