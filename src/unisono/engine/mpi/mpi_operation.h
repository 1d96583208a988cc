#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/deadline.h"
#include "unisono/engine/mpi/blocks.h"
#include "unisono/engine/mpi/library.h"
#include "unisono/engine/mpi/module.h"
#include "unisono/engine/operation.h"
#include "unisono/engine/supervising_engine.h"

namespace unisono::engine::mpi {

/// What is the same for all operations of a group.
struct MpiGroup {
  std::shared_ptr<Library> library;
  std::vector<int> world_ranks;  ///< Of its ranks in the MPI's world.
  int rank = 0;                  ///< This rank's in the group.
  bool is_on_one_node = true;
  Handle communicator = {};
  bool has_communicator = false;  ///< Made by the first operation.
};

/// One operation as the MPI's: at first, where ranks of other nodes may have called something else,
/// a comparison of what all have called; then the exchange of what only pairs of ranks know, where
/// their blocks differ; then the operation itself.
class MpiOperation final : public SupervisedOperation {
 public:
  explicit MpiOperation(MpiGroup& group) : group_(group) {}

  [[nodiscard]] bool meets_all() const override { return !group_.has_communicator; }

  void begin(const Operation& operation, std::uint32_t group) override;
  [[nodiscard]] bool advance() override;

  /// Whether it has begun, on this rank, and is not done: the MPI may work on its memory, and ranks
  /// may wait in it for ever.
  [[nodiscard]] bool has_begun() const { return has_begun_; }

  /// Keeps the memory that the operation is given for good.
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
  Blocks sources_;
  Blocks targets_;
  std::array<Buffer, 1> own_ = {};  // This rank's result where it is written apart at first.
  Operation kept_ = {};
};

}  // namespace unisono::engine::mpi
