#include "unisono/transport/shm/ring.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/transport/shm/control_block.h"

namespace unisono::shm {
namespace {

using transport::Packet;
using transport::PacketKind;
using transport::PacketMemory;

constexpr std::size_t kNumberAndPlaceBytes = 16;

// Returns the offset of label and payload in a cell's body.
std::size_t body_begin(PacketKind kind) {
  return kind == PacketKind::kMessage ? 0 : kNumberAndPlaceBytes;
}

bool fits_into_cell(PacketKind kind, std::size_t n_label_bytes, std::size_t n_bytes) {
  return n_label_bytes + n_bytes <= sizeof(RingCell::body) - body_begin(kind);
}

void copy_bytes(std::byte* to, const std::byte* from, std::size_t n_bytes) {
  if (n_bytes > 0) {
    std::memcpy(to, from, n_bytes);
  }
}

}  // namespace

bool RingWriter::write(const Packet& packet,
                       std::string_view label,
                       std::span<const std::byte> payload) noexcept {
  const auto label_bytes = std::as_bytes(std::span(label.substr(0, transport::kMaxLabelBytes)));
  const bool is_inline = fits_into_cell(packet.kind, label_bytes.size(), payload.size());
  const std::uint64_t n_ring_bytes = is_inline ? 0 : label_bytes.size() + payload.size();
  if (!fits(n_ring_bytes) && !look_for_room(n_ring_bytes)) [[unlikely]] {
    return false;
  }
  RingCell& cell = memory_.cells[n_cells_ % kRingCells];
  cell.kind = static_cast<std::uint8_t>(packet.kind);
  cell.dtype = static_cast<std::uint8_t>(packet.dtype);
  cell.memory = static_cast<std::uint8_t>(packet.memory);
  cell.n_label_bytes = static_cast<std::uint8_t>(label_bytes.size());
  cell.tag = packet.tag;
  cell.n_bytes = static_cast<std::uint32_t>(payload.size());
  cell.count = packet.count;
  std::byte* body = cell.body.data();
  if (packet.kind != PacketKind::kMessage) {
    std::memcpy(body, &packet.number, sizeof(packet.number));
    std::memcpy(body + 8, &packet.place, sizeof(packet.place));
    body += kNumberAndPlaceBytes;
  }
  if (is_inline) {
    copy_bytes(body, label_bytes.data(), label_bytes.size());
    copy_bytes(body + label_bytes.size(), payload.data(), payload.size());
  } else {
    put(label_bytes);
    put(payload);
  }
  ++n_cells_;
  // Sequentially consistent, because the writer reads the reader's doorbell next.
  cell.turn.store(static_cast<std::uint32_t>(n_cells_), std::memory_order_seq_cst);
  return true;
}

bool RingWriter::fits(std::uint64_t n_ring_bytes) const noexcept {
  return n_cells_ - n_cells_taken_ < kRingCells &&
         n_bytes_ - n_bytes_taken_ + n_ring_bytes <= kRingBytes;
}

// The writer announces that it waits, then checks for room once more; the reader frees room, then
// checks for a waiting writer. All four accesses are sequentially consistent, so at least one side
// sees the other.
bool RingWriter::look_for_room(std::uint64_t n_ring_bytes) noexcept {
  for (const bool must_wait : {false, true}) {
    if (must_wait && !is_waiting_) {
      is_waiting_ = true;
      memory_.is_writer_waiting.store(1, std::memory_order_seq_cst);
    }
    // A reader that reports more than was written would only corrupt the data of its own ring.
    n_cells_taken_ = std::min(memory_.n_cells_taken.load(std::memory_order_seq_cst), n_cells_);
    n_bytes_taken_ = std::min(memory_.n_bytes_taken.load(std::memory_order_seq_cst), n_bytes_);
    if (fits(n_ring_bytes)) {
      if (is_waiting_) {
        is_waiting_ = false;
        memory_.is_writer_waiting.store(0, std::memory_order_relaxed);
      }
      return true;
    }
  }
  return false;
}

void RingWriter::put(std::span<const std::byte> bytes) noexcept {
  const std::uint64_t at = n_bytes_ % kRingBytes;
  const std::size_t n_first = std::min<std::size_t>(bytes.size(), kRingBytes - at);
  copy_bytes(memory_.bytes.data() + at, bytes.data(), n_first);
  copy_bytes(memory_.bytes.data(), bytes.data() + n_first, bytes.size() - n_first);
  n_bytes_ += bytes.size();
}

const Packet* RingReader::peek() {
  if (!has_packet_) {
    const RingCell& cell = memory_.cells[n_cells_ % kRingCells];
    // Sequentially consistent, because the reader polls after announcing a sleep.
    if (cell.turn.load(std::memory_order_seq_cst) != static_cast<std::uint32_t>(n_cells_ + 1)) {
      if (n_cells_given_ != n_cells_) {
        give_room();
      }
      return nullptr;
    }
    read_cell(cell);
    has_packet_ = true;
  }
  return &packet_;
}

// Reads each field once, so that the checked values are the used values.
void RingReader::read_cell(const RingCell& cell) {
  packet_ = {.kind = static_cast<PacketKind>(cell.kind),
             .dtype = static_cast<DType>(cell.dtype),
             .memory = static_cast<PacketMemory>(cell.memory),
             .tag = cell.tag,
             .n_bytes = cell.n_bytes,
             .count = cell.count};
  n_label_bytes_ = cell.n_label_bytes;
  if (!transport::is_plausible(packet_) || n_label_bytes_ > transport::kMaxLabelBytes ||
      n_label_bytes_ + packet_.n_bytes > kRingBytes) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{} wrote an invalid packet to shared memory", name_));
  }
  if (packet_.kind != PacketKind::kMessage) {
    std::memcpy(&packet_.number, cell.body.data(), sizeof(packet_.number));
    std::memcpy(&packet_.place, cell.body.data() + 8, sizeof(packet_.place));
  }
  is_inline_ = fits_into_cell(packet_.kind, n_label_bytes_, packet_.n_bytes);
  label_.resize(n_label_bytes_);
  const auto label_bytes = std::as_writable_bytes(std::span(label_));
  if (is_inline_) {
    copy_bytes(label_bytes.data(), cell.body.data() + body_begin(packet_.kind), n_label_bytes_);
  } else {
    get(label_bytes);
  }
}

void RingReader::take(std::span<std::byte> payload) noexcept {
  const RingCell& cell = memory_.cells[n_cells_ % kRingCells];
  if (is_inline_) {
    copy_bytes(payload.data(),
               cell.body.data() + body_begin(packet_.kind) + n_label_bytes_,
               payload.size());
  } else {
    get(payload);
  }
  has_packet_ = false;
  ++n_cells_;
  if (n_cells_ - n_cells_given_ >= kRingCells / 8 || n_bytes_ - n_bytes_given_ >= kRingBytes / 8) {
    give_room();
  }
}

// Not called for each packet: only once much room is free, or when the ring is empty.
void RingReader::give_room() noexcept {
  n_cells_given_ = n_cells_;
  n_bytes_given_ = n_bytes_;
  memory_.n_bytes_taken.store(n_bytes_, std::memory_order_seq_cst);
  memory_.n_cells_taken.store(n_cells_, std::memory_order_seq_cst);
  must_ring_ = must_ring_ || memory_.is_writer_waiting.load(std::memory_order_seq_cst) != 0;
}

void RingReader::get(std::span<std::byte> bytes) noexcept {
  const std::uint64_t at = n_bytes_ % kRingBytes;
  const std::size_t n_first = std::min<std::size_t>(bytes.size(), kRingBytes - at);
  take_over(bytes.data(), memory_.bytes.data() + at, n_first);
  take_over(bytes.data() + n_first, memory_.bytes.data(), bytes.size() - n_first);
  n_bytes_ += bytes.size();
}

}  // namespace unisono::shm
