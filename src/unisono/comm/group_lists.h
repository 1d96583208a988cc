#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/comm/group.h"
#include "unisono/comm/job.h"
#include "unisono/comm/membership.h"
#include "unisono/health/group_registry.h"

namespace unisono::comm {

/// The ranks of a group to be made, as ranks of the group that it is made of, in the order of their
/// ranks in the new one.
using RankList = std::vector<int>;

/// Throws Error(kInvalidArgument) unless it has some of `world_size` ranks, each once.
void check_list(const RankList& list, int world_size);

/// Equal lists have equal fingerprints.
[[nodiscard]] std::int64_t fingerprint_of(std::span<const RankList> lists);

[[nodiscard]] bool has(const RankList& list, int rank);

/// Groups that this rank is about to make: until then, or until this ends without them, what others
/// tell of them is kept.
class Expectation {
 public:
  Expectation(health::GroupRegistry& groups, std::vector<std::uint32_t> numbers);
  ~Expectation();

  Expectation(const Expectation&) = delete;
  Expectation& operator=(const Expectation&) = delete;
  Expectation(Expectation&&) = delete;
  Expectation& operator=(Expectation&&) = delete;

 private:
  health::GroupRegistry& groups_;
  std::vector<std::uint32_t> numbers_;
};

/// The offset of a control block that a rank has no room for: it comes to the meeting all the same,
/// so that all hear of it.
inline constexpr std::int64_t kNoRoom = -2;

/// Memory for the control blocks of those groups that this rank is in; given back unless it is
/// kept.
class ControlBlocks {
 public:
  ControlBlocks(Job& job, const Membership& parent, std::span<const RankList> lists);
  ~ControlBlocks();

  ControlBlocks(const ControlBlocks&) = delete;
  ControlBlocks& operator=(const ControlBlocks&) = delete;
  ControlBlocks(ControlBlocks&&) = delete;
  ControlBlocks& operator=(ControlBlocks&&) = delete;

  /// Where each is in this rank's arena; -1 for groups without this rank, or kNoRoom.
  [[nodiscard]] const std::vector<std::int64_t>& offsets() const { return offsets_; }

  /// Others know of the memory now.
  void keep() { is_kept_ = true; }

  /// Throws why this rank has no room, if so.
  void check() const;

 private:
  Job& job_;
  std::vector<std::int64_t> offsets_;
  std::optional<Error> problem_;
  bool is_kept_ = false;
};

/// Throws Error(kSystem) if `offset` says that `rank` of the parent has no room for a control
/// block.
void check_offset(std::int64_t offset, int rank, const Membership& parent);

/// Tells the others of `list`, of which this rank is one, why it can't make the group of this
/// number with them: they may have made it, and wait there.
void tell_unmade(Group& parent, const RankList& list, std::uint32_t number, const Error& error);

/// The group of `list`, of which this rank is one, under a number that was expected; `offset_of`
/// says where a rank of this node has its control block.
[[nodiscard]] std::unique_ptr<Group> make_group(
    Group& parent,
    const RankList& list,
    std::uint32_t number,
    std::optional<std::chrono::milliseconds> timeout,
    const std::function<std::int64_t(int rank)>& offset_of);

}  // namespace unisono::comm
