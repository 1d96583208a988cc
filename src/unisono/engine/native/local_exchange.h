#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unisono/engine/native/operation_context.h"
#include "unisono/transport/shm/board.h"

namespace unisono::engine {

/// What this rank gives the ranks of its node, and takes from them. Bytes that lie in several
/// places count as one after the other.
struct LocalTransfers {
  using Source = std::vector<std::span<const std::byte>>;
  using Sink = std::vector<std::span<std::byte>>;

  std::vector<Source> lanes;
  std::vector<int> lane_to;  ///< By local rank: which of `lanes` is for it, or -1.
  std::vector<Sink> from;    ///< By local rank; as large as what that rank gives this one.
  /// Whether the bytes of `lanes` are there when offer() is called, not only when take() is.
  bool is_ready = true;
};

/// Moves bytes between the ranks of a node. Each rank shows the others what it gives, and each
/// takes its own: from a slot if it is little, straight out of the giver's arena if it lies there,
/// else window by window through staging buffers, two of them in turn.
///
/// All ranks of the node take part: offer() before they enter the operation, take() after it.
class LocalExchange {
 public:
  LocalExchange(OperationContext& context, LocalTransfers transfers);

  void offer();

  /// Throws Error(kMismatch), the same on all ranks of the node, where a rank gives another more or
  /// less than that takes.
  void take();

 private:
  void describe_lanes();
  [[nodiscard]] bool is_for_others(int lane) const;
  [[nodiscard]] shm::Exposure choose_exposure(const std::vector<int>& lanes);
  void check_sizes() const;
  void take_at_once(int giver);
  void stage(std::int64_t window);
  void take_staged(int giver, std::int64_t window);

  [[nodiscard]] shm::Placement& mine() {
    return context_.board.my_card(context_.operation.sequence).placement;
  }

  OperationContext& context_;
  LocalTransfers transfers_;
  std::vector<std::int64_t> lane_bytes_;
  std::vector<std::int64_t> lane_offsets_;
};

}  // namespace unisono::engine
