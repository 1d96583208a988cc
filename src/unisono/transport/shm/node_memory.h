#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "unisono/base/fd.h"
#include "unisono/transport/shm/arena.h"

namespace unisono::shm {

/// What is known of a rank's membership of its node's job.
enum class SeatState : std::uint32_t {
  kTaken,  ///< The rank takes part, or is about to.
  kLeft,   ///< It has left the job in good order.
  kGone    ///< It has ended without that.
};

/// The shared memory of a node's ranks: one file without a name, in which each rank has an arena.
/// One descriptor and one mapping give a rank all of its node, however many ranks that has. Ranks
/// that are threads of one process share the mapping. Thread-safe.
class NodeMemory {
 public:
  /// Makes the file, with an arena of as many bytes for each rank of the node, in order of rank.
  /// Throws Error(kSystem).
  [[nodiscard]] static NodeMemory create(std::span<const std::int64_t> arena_bytes);

  /// Maps the file that another rank has made. Throws Error(kSystem), or kCorruptData where it is
  /// no memory of `n_ranks` ranks.
  [[nodiscard]] static NodeMemory map(Fd file, std::size_t n_ranks);

  [[nodiscard]] int fd() const { return file_->fd(); }

  /// The arena of a rank, by its place among the ranks of the node.
  [[nodiscard]] std::shared_ptr<const Arena> arena(std::size_t index) const;

  [[nodiscard]] std::size_t n_ranks() const;

  /// Random bytes that only ranks which have proved the job's secret can read.
  using Key = std::array<std::byte, 16>;

  [[nodiscard]] const Key& key() const;

  /// Acquire: what the rank wrote before the state changed is visible.
  [[nodiscard]] SeatState state(std::size_t index) const;

  /// This rank leaves the job in good order.
  void leave(std::size_t index) const;

  /// A rank has ended without leaving. False where that was noted before, or it has left.
  [[nodiscard]] bool note_gone(std::size_t index) const;

 private:
  struct Seat;
  struct Header;

  explicit NodeMemory(std::shared_ptr<const Arena> file) : file_(std::move(file)) {}

  [[nodiscard]] Header& header() const;
  [[nodiscard]] Seat& seat(std::size_t index) const;

  std::shared_ptr<const Arena> file_;  // Shared with the arenas, and with threads of this process.
};

}  // namespace unisono::shm
