#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "unisono/transport/packet.h"

namespace unisono::shm {

/// Packets that a ring holds at most.
inline constexpr std::uint64_t kRingCells = 256;

/// Payload that it holds at most, besides what lies in the cells.
inline constexpr std::uint64_t kRingBytes = 256 << 10;

/// A packet as it lies in shared memory: a cache line, so that a small message is one transfer.
struct alignas(64) RingCell {
  /// Written last: 1 + the number of the packet, so whoever sees it sees the rest.
  std::atomic<std::uint32_t> turn;
  std::uint8_t kind;
  std::uint8_t dtype;
  std::uint8_t memory;
  std::uint8_t n_label_bytes;
  std::int32_t tag;
  std::uint32_t n_bytes;
  std::int64_t count;
  /// kMessage: label and payload if they fit. Others: number (4), 4 free, place (8), label.
  std::array<std::byte, 40> body;
};

static_assert(sizeof(RingCell) == 64);

/// Packets from one rank to another of its node. Lies in the reader's arena, zeroed at first.
struct RingMemory {
  // The reader's line.
  alignas(64) std::atomic<std::uint64_t> n_cells_taken;
  std::atomic<std::uint64_t> n_bytes_taken;
  // The writer's line: it waits for room.
  alignas(64) std::atomic<std::uint32_t> is_writer_waiting;
  std::array<RingCell, kRingCells> cells;
  // What does not fit into the cells, in their order: label, then payload; wraps around.
  alignas(4096) std::array<std::byte, kRingBytes> bytes;
};

/// The writing end. One thread at a time.
class RingWriter {
 public:
  explicit RingWriter(RingMemory& memory) : memory_(memory) {}

  /// False when there is no room now. The reader then finds that this end waits.
  [[nodiscard]] bool write(const transport::Packet& packet,
                           std::string_view label,
                           std::span<const std::byte> payload) noexcept;

 private:
  [[nodiscard]] bool fits(std::uint64_t n_ring_bytes) const noexcept;
  [[nodiscard]] bool look_for_room(std::uint64_t n_ring_bytes) noexcept;
  void put(std::span<const std::byte> bytes) noexcept;

  RingMemory& memory_;
  std::uint64_t n_cells_ = 0;
  std::uint64_t n_bytes_ = 0;
  // What the reader had taken when this end last looked.
  std::uint64_t n_cells_taken_ = 0;
  std::uint64_t n_bytes_taken_ = 0;
  bool is_waiting_ = false;
};

/// The reading end. One thread at a time. What the writer wrote is checked before it is used.
class RingReader {
 public:
  /// `name` stands for the writer in errors, e.g. "rank 3 (pid 4123 on node-a)".
  RingReader(RingMemory& memory, std::string name) : memory_(memory), name_(std::move(name)) {}

  /// The next packet; null when there is none. Throws Error(kCorruptData).
  [[nodiscard]] const transport::Packet* peek();

  [[nodiscard]] std::string_view label() const { return label_; }

  /// Copies the packet's payload and goes on to the next.
  void take(std::span<std::byte> payload) noexcept;

  /// Whether the writer waits for room that it has got since the last call.
  [[nodiscard]] bool must_ring() noexcept { return std::exchange(must_ring_, false); }

 private:
  void give_room() noexcept;
  void read_cell(const RingCell& cell);
  void get(std::span<std::byte> bytes) noexcept;

  RingMemory& memory_;
  std::string name_;
  std::uint64_t n_cells_ = 0;
  std::uint64_t n_bytes_ = 0;
  // What the writer knows of them.
  std::uint64_t n_cells_given_ = 0;
  std::uint64_t n_bytes_given_ = 0;
  bool must_ring_ = false;
  bool has_packet_ = false;
  bool is_inline_ = false;
  std::size_t n_label_bytes_ = 0;
  transport::Packet packet_;
  std::string label_;
};

}  // namespace unisono::shm
