#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include "unisono/engine/native/operation_context.h"
#include "unisono/transport/shm/control_block.h"

namespace unisono::engine {

/// Bytes of several buffers, mostly of one, addressed as one sequence.
template <class Bytes>
class Pieces {
 public:
  explicit Pieces(std::pmr::memory_resource& memory) : others_(&memory) {}

  void push_back(Bytes piece) {
    if (size_++ == 0) {
      first_ = piece;
    } else {
      others_.push_back(piece);
    }
  }

  [[nodiscard]] std::size_t size() const { return size_; }

  [[nodiscard]] Bytes operator[](std::size_t index) const {
    return index == 0 ? first_ : others_[index - 1];
  }

 private:
  std::size_t size_ = 0;
  Bytes first_;
  std::pmr::vector<Bytes> others_;
};

/// What this rank gives the ranks of its node, and takes from them.
struct LocalTransfers {
  using Source = Pieces<std::span<const std::byte>>;
  using Sink = Pieces<std::span<std::byte>>;

  /// With room for `n_local` ranks.
  LocalTransfers(std::pmr::memory_resource& memory, int n_local)
      : offers(&memory), offer_to(&memory), from(&memory) {
    const auto n = static_cast<std::size_t>(n_local);
    offers.reserve(n);
    offer_to.reserve(n);
    from.reserve(n);
  }

  std::pmr::vector<Source> offers;
  std::pmr::vector<int> offer_to;  ///< By local rank: which of `offers` is for it, or -1.
  std::pmr::vector<Sink> from;     ///< By local rank; as large as what that rank gives this one.
  /// Whether the bytes of `offers` are there when show() is called, not only when take() is.
  bool is_ready = true;
  /// Some ranks only give, or only take.
  bool is_one_sided = false;
};

/// Moves bytes between the ranks of a node. Each rank shows the others what it gives, and each
/// takes its own: from a header or a slot if it is little, straight out of the giver's arena if it
/// lies there, or out of its process if that pays; else window by window through staging buffers,
/// two of them in turn.
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
  [[nodiscard]] bool are_sizes_agreed() const;
  void check_sizes() const;
  void take_at_once(int giver);
  void stage(std::int64_t window);
  void take_staged(int giver, std::int64_t window);
  void take_copy(int giver, std::byte* copy, std::int64_t begin, std::int64_t n_bytes);

  [[nodiscard]] shm::OfferPlacement& mine() {
    return context_.control_block.own_header(context_.operation.sequence).offers;
  }

  // The source of an offer, if it is in one piece.
  [[nodiscard]] const std::byte* only_piece(int offer) const;

  OperationContext& context_;
  LocalTransfers transfers_;
  std::pmr::vector<std::int64_t> offer_bytes_;
  std::pmr::vector<std::int64_t> offer_offsets_;
};

}  // namespace unisono::engine
