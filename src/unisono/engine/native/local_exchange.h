#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include "unisono/engine/native/operation_context.h"
#include "unisono/transport/shm/board.h"

namespace unisono::engine {

/// What this rank gives the ranks of its node, and takes from them. Bytes that lie in several
/// places count as one after the other.
struct LocalTransfers {
  using Source = std::pmr::vector<std::span<const std::byte>>;
  using Sink = std::pmr::vector<std::span<std::byte>>;

  explicit LocalTransfers(std::pmr::memory_resource& memory)
      : offers(&memory), offer_to(&memory), from(&memory) {}

  std::pmr::vector<Source> offers;
  std::pmr::vector<int> offer_to;  ///< By local rank: which of `offers` is for it, or -1.
  std::pmr::vector<Sink> from;     ///< By local rank; as large as what that rank gives this one.
  /// Whether the bytes of `offers` are there when show() is called, not only when take() is.
  bool is_ready = true;
  /// Some ranks only give, or only take.
  bool is_one_sided = false;
};

/// Moves bytes between the ranks of a node. Each rank shows the others what it gives, and each
/// takes its own: from a slot if it is little, straight out of the giver's arena if it lies there,
/// or out of its process if that pays; else window by window through staging buffers, two of them
/// in turn.
///
/// All ranks of the node take part: show() before they enter the operation, take() after it.
class LocalExchange {
 public:
  LocalExchange(OperationContext& context, LocalTransfers transfers);

  void show();

  /// Throws Error(kMismatch), the same on all ranks of the node, where a rank gives another more or
  /// less than that takes.
  void take();

 private:
  void describe_offers();
  [[nodiscard]] bool is_for_others(int offer) const;
  [[nodiscard]] int n_takers(int offer) const;
  [[nodiscard]] bool is_better_staged(std::span<const int> offers, std::int64_t n_bytes) const;
  [[nodiscard]] shm::Exposure choose_exposure(std::span<const int> offers);
  void check_sizes() const;
  void take_at_once(int giver);
  void stage(std::int64_t window);
  void take_staged(int giver, std::int64_t window);
  void take_copy(int giver, std::byte* copy, std::int64_t begin, std::int64_t n_bytes);

  [[nodiscard]] shm::OfferPlacement& mine() {
    return context_.board.my_card(context_.operation.sequence).offers;
  }

  // The source of an offer, if it is in one piece.
  [[nodiscard]] const std::byte* only_piece(int offer) const;

  OperationContext& context_;
  LocalTransfers transfers_;
  std::pmr::vector<std::int64_t> offer_bytes_;
  std::pmr::vector<std::int64_t> offer_offsets_;
};

}  // namespace unisono::engine
