#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "unisono/transport/frame.h"

namespace unisono::shm {

/// Largest number of packets in a ring.
inline constexpr std::uint64_t kRingCells = 256;

/// Largest payload in a ring, in addition to the payload inside the cells.
inline constexpr std::uint64_t kRingBytes = 256 << 10;

/// A packet in shared memory: a single cache line, so that a small message costs a single transfer.
struct alignas(64) RingCell {
  /// 1 + the number of the packet. Written last: a reader that sees the number also sees the rest.
  std::atomic<std::uint32_t> turn;
  std::uint8_t kind;
  std::uint8_t dtype;
  std::uint8_t memory;
  std::uint8_t n_label_bytes;
  std::int32_t tag;
  std::uint32_t n_bytes;
  std::int64_t count;
  /// kMessage: label and payload if there is room. Other kinds: number (4 bytes), 4 unused, place
  /// (8), label.
  std::array<std::byte, 40> body;
};

static_assert(sizeof(RingCell) == 64);

/// Packets from a rank to another rank of the same node. Lies in the reader's arena,
/// zero-initialized. Single producer, single consumer.
struct RingMemory {
  // Written by the reader.
  alignas(64) std::atomic<std::uint64_t> n_cells_taken;
  std::atomic<std::uint64_t> n_bytes_taken;
  // Written by the writer: nonzero while waiting for room.
  alignas(64) std::atomic<std::uint32_t> is_writer_waiting;
  std::array<RingCell, kRingCells> cells;
  // Label and payload of packets that do not fit into the cells, in the order of the cells; wraps
  // around.
  alignas(4096) std::array<std::byte, kRingBytes> bytes;
};

/// The writing end of a ring. Not thread-safe.
class RingWriter {
 public:
  explicit RingWriter(RingMemory& memory) : memory_(memory) {}

  /// Returns false if there is no room now. The reader will then see that the writer waits.
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
  // The reader's counters at the last check.
  std::uint64_t n_cells_taken_ = 0;
  std::uint64_t n_bytes_taken_ = 0;
  bool is_waiting_ = false;
};

/// The reading end of a ring. Not thread-safe. Data from the writer is validated before use.
class RingReader {
 public:
  /// `name` denotes the writer in errors, e.g. "rank 3 (pid 4123 on node-a)".
  RingReader(RingMemory& memory, std::string name) : memory_(memory), name_(std::move(name)) {}

  /// Returns the next packet; null if the ring is empty. Throws Error(kCorruptData).
  [[nodiscard]] const transport::Packet* peek();

  [[nodiscard]] std::string_view label() const { return label_; }

  /// Copies the packet's payload and advances to the next packet.
  void take(std::span<std::byte> payload) noexcept;

  /// Returns true if the writer waits for room and room was freed since the last call: the caller
  /// must ring the writer.
  [[nodiscard]] bool must_ring() noexcept { return std::exchange(must_ring_, false); }

 private:
  void give_room() noexcept;
  void read_cell(const RingCell& cell);
  void get(std::span<std::byte> bytes) noexcept;

  RingMemory& memory_;
  std::string name_;
  std::uint64_t n_cells_ = 0;
  std::uint64_t n_bytes_ = 0;
  // The counters that were last published to the writer.
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
