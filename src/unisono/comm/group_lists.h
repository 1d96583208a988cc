#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/comm/group_state.h"
#include "unisono/comm/job.h"
#include "unisono/comm/operation_queue.h"
#include "unisono/peers/group_registry.h"

namespace unisono::comm {

/// The ranks of a new group, as ranks of the parent, in the order of ranks in the new group.
using RankList = std::vector<int>;

/// Throws Error(kInvalidArgument) unless the list is a non-empty set of ranks below `world_size`.
void check_list(const RankList& list, int world_size);

/// Returns a hash of the lists; equal lists have equal fingerprints.
[[nodiscard]] std::int64_t fingerprint_of(std::span<const RankList> lists);

[[nodiscard]] bool has(const RankList& list, int rank);

/// Registers groups that this rank is about to make, so that other ranks' reports about them are
/// kept until the groups are made. The destructor drops reports about groups that were not made.
class Expectation {
 public:
  /// Announces the groups to the registry, which must outlive the object.
  Expectation(peers::GroupRegistry& groups, std::vector<std::uint32_t> numbers);
  ~Expectation();

  Expectation(const Expectation&) = delete;
  Expectation& operator=(const Expectation&) = delete;
  Expectation(Expectation&&) = delete;
  Expectation& operator=(Expectation&&) = delete;

 private:
  peers::GroupRegistry& groups_;
  std::vector<std::uint32_t> numbers_;
};

/// Offset of a control block for which a rank has no room. The rank takes part in the exchange
/// nevertheless, so that all ranks get the error.
inline constexpr std::int64_t kNoRoom = -2;

/// Memory for the control blocks of new groups with this rank. The destructor releases the memory,
/// unless keep() was called.
class ControlBlocks {
 public:
  /// Reserves memory for each list that contains this rank. Does not throw if the arena has no
  /// room; see check().
  ControlBlocks(Job& job, const GroupState& parent, std::span<const RankList> lists);
  ~ControlBlocks();

  ControlBlocks(const ControlBlocks&) = delete;
  ControlBlocks& operator=(const ControlBlocks&) = delete;
  ControlBlocks(ControlBlocks&&) = delete;
  ControlBlocks& operator=(ControlBlocks&&) = delete;

  /// Returns the offset of each block in this rank's arena; -1 for groups without this rank, or
  /// kNoRoom.
  [[nodiscard]] const std::vector<std::int64_t>& offsets() const { return offsets_; }

  /// Keeps the memory, because other ranks now have its offsets.
  void keep() { is_kept_ = true; }

  /// Throws the reason if this rank has no room.
  void check() const;

 private:
  Job& job_;
  std::vector<std::int64_t> offsets_;
  std::optional<Error> problem_;
  bool is_kept_ = false;
};

/// Throws Error(kSystem) if `offset` means that `rank` of the parent has no room for a control
/// block.
void check_offset(std::int64_t offset, int rank, const GroupState& parent);

/// Reports to the other ranks of `list`, which contains this rank, why this rank can't make the
/// group. The other ranks may have made the group, and wait in it.
void tell_unmade(OperationQueue& parent,
                 const RankList& list,
                 std::uint32_t number,
                 const Error& error);

/// Makes the group of `list`, which contains this rank, with an expected number. `offset_of`
/// returns the offset of the control block of a rank of this node.
[[nodiscard]] std::unique_ptr<OperationQueue> make_group(
    OperationQueue& parent,
    const RankList& list,
    std::uint32_t number,
    std::optional<std::chrono::milliseconds> timeout,
    const std::function<std::int64_t(int rank)>& offset_of);

}  // namespace unisono::comm
