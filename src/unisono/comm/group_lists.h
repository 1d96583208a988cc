#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "unisono/comm/group.h"
#include "unisono/comm/job.h"
#include "unisono/comm/links.h"

namespace unisono::comm {

/// The ranks of a group to be made, as ranks of the group that it is made of, in the order of their
/// ranks in the new one.
using RankList = std::vector<int>;

/// Throws Error(kInvalidArgument) unless it has some of `world_size` ranks, each once.
void check_list(const RankList& list, int world_size);

/// Equal lists have equal fingerprints.
[[nodiscard]] std::int64_t fingerprint_of(std::span<const RankList> lists);

[[nodiscard]] bool has(const RankList& list, int rank);

/// Memory for the boards of those groups that this rank is in; given back unless it is kept.
class Boards {
 public:
  Boards(Job& job, const Links& parent, std::span<const RankList> lists);
  ~Boards();

  Boards(const Boards&) = delete;
  Boards& operator=(const Boards&) = delete;
  Boards(Boards&&) = delete;
  Boards& operator=(Boards&&) = delete;

  /// Where each is in this rank's arena; -1 for groups without this rank.
  [[nodiscard]] const std::vector<std::int64_t>& offsets() const { return offsets_; }

  /// Others know of the memory now.
  void keep() { is_kept_ = true; }

 private:
  Job& job_;
  std::vector<std::int64_t> offsets_;
  bool is_kept_ = false;
};

/// The group of `list`, of which this rank is one, under a number that was expected; `offset_of`
/// says where a rank of this node has its board.
[[nodiscard]] std::unique_ptr<Group> make_group(
    Group& parent,
    const RankList& list,
    std::uint32_t number,
    std::optional<std::chrono::milliseconds> timeout,
    const std::function<std::int64_t(int rank)>& offset_of);

}  // namespace unisono::comm
