#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include "unisono/engine/native/operation_context.h"
#include "unisono/transport/shm/control_block.h"

namespace unisono::engine {

/// Bytes of several buffers, usually of a single buffer, addressed as a sequence.
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

/// Data that this rank gives to each rank of the node, and takes from each rank.
struct LocalTransfers {
  using Source = Pieces<std::span<const std::byte>>;
  using Sink = Pieces<std::span<std::byte>>;

  /// Reserves room for `n_local` ranks.
  LocalTransfers(std::pmr::memory_resource& memory, int n_local)
      : offers(&memory), offer_to(&memory), from(&memory) {
    const auto n = static_cast<std::size_t>(n_local);
    offers.reserve(n);
    offer_to.reserve(n);
    from.reserve(n);
  }

  /// Distinct data for other ranks; several ranks may take the same offer.
  std::pmr::vector<Source> offers;
  std::pmr::vector<int> offer_to;  ///< By local rank: index of the rank's offer, or -1.
  std::pmr::vector<Sink> from;     ///< By local rank: memory for the data that this rank takes.
  /// The bytes of `offers` are available at show(), not only at take().
  bool is_ready = true;
  /// Some ranks only give, or only take.
  bool is_one_sided = false;
};

/// Moves bytes between the ranks of a node. Each rank publishes offers, and each taker reads small
/// data from the giver's header or slot, and other data directly from the giver's arena, or from
/// the giver's process if that is faster; otherwise window by window through two alternating
/// staging buffers.
///
/// Lives on the stack of an operation. All ranks of the node take part: show() before entering the
/// operation, take() after that.
class LocalExchange {
 public:
  /// `context` must outlive the object.
  LocalExchange(OperationContext& context, LocalTransfers transfers);

  /// Publishes this rank's offers in its header, and copies small data that is ready into the
  /// header or slot.
  void show();

  /// Throws Error(kMismatch), with the same text on all ranks of the node, if a rank gives another
  /// rank more or less data than the other rank takes.
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

  // Returns the source of an offer in a single piece, otherwise null.
  [[nodiscard]] const std::byte* only_piece(int offer) const;

  OperationContext& context_;
  LocalTransfers transfers_;
  std::pmr::vector<std::int64_t> offer_bytes_;
  std::pmr::vector<std::int64_t> offer_offsets_;
};

}  // namespace unisono::engine
