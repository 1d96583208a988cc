#include "unisono/transport/shm/ring.h"

#include <cstring>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/transport/shm/arena.h"

namespace unisono::shm {
namespace {

using transport::Packet;
using transport::PacketKind;

// A ring like in an arena, with both ends.
struct Ends {
  Arena arena = Arena::create(1 << 20);
  RingMemory& memory = *reinterpret_cast<RingMemory*>(arena.data());
  RingWriter writer{memory};
  RingReader reader{memory, "rank 1"};
};

std::vector<std::byte> bytes_of(std::size_t n_bytes, int seed) {
  std::vector<std::byte> bytes(n_bytes);
  for (std::size_t i = 0; i < n_bytes; ++i) {
    bytes[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(seed));
  }
  return bytes;
}

Packet message_of(std::size_t n_bytes, int tag) {
  return {.kind = PacketKind::kMessage,
          .dtype = DType::kUInt8,
          .tag = tag,
          .n_bytes = static_cast<std::uint32_t>(n_bytes),
          .count = static_cast<std::int64_t>(n_bytes)};
}

TEST(Ring, CarriesPacketsOfAllSizesWithTheirLabelsInOrder) {
  Ends ring;
  const std::vector<std::string> labels{"", "w", std::string(40, 'l'), std::string(120, 'x')};
  int tag = 0;
  // Enough rounds to wrap around cells and bytes.
  for (int round = 0; round < 40; ++round) {
    for (const std::size_t n_bytes : {0U, 1U, 39U, 40U, 41U, 5000U, 65536U}) {
      for (const std::string& label : labels) {
        const std::vector<std::byte> payload = bytes_of(n_bytes, tag);
        ASSERT_TRUE(ring.writer.write(message_of(n_bytes, tag), label, payload));
        const Packet* const packet = ring.reader.peek();
        ASSERT_NE(packet, nullptr);
        EXPECT_EQ(packet->tag, tag);
        EXPECT_EQ(packet->n_bytes, n_bytes);
        EXPECT_EQ(ring.reader.label(), label);
        std::vector<std::byte> taken(n_bytes);
        ring.reader.take(taken);
        EXPECT_EQ(taken, payload);
        ++tag;
      }
    }
  }
  EXPECT_EQ(ring.reader.peek(), nullptr);
}

TEST(Ring, CarriesNumberAndPlaceOfAnnouncements) {
  Ends ring;
  const Packet sent{.kind = PacketKind::kAnnounce,
                    .dtype = DType::kFloat64,
                    .memory = transport::PacketMemory::kArena,
                    .tag = 3,
                    .number = 77,
                    .count = std::int64_t{1} << 40,
                    .place = std::int64_t{1} << 50};
  ASSERT_TRUE(ring.writer.write(sent, "of the model", {}));
  const Packet* const packet = ring.reader.peek();
  ASSERT_NE(packet, nullptr);
  EXPECT_EQ(packet->memory, sent.memory);
  EXPECT_EQ(packet->number, sent.number);
  EXPECT_EQ(packet->count, sent.count);
  EXPECT_EQ(packet->place, sent.place);
  EXPECT_EQ(ring.reader.label(), "of the model");
}

TEST(Ring, IsFullAtItsLimitsAndTheReaderHearsWhoWaits) {
  for (const std::size_t n_bytes : {8U, 10'000U}) {
    Ends ring;
    const std::vector<std::byte> payload = bytes_of(n_bytes, 1);
    std::size_t n_written = 0;
    while (ring.writer.write(message_of(n_bytes, 0), "", payload)) {
      ++n_written;
    }
    EXPECT_EQ(n_written, n_bytes == 8 ? kRingCells : kRingBytes / n_bytes);
    std::vector<std::byte> taken(n_bytes);
    // The reader returns the room in parts, and at the latest when the ring is empty.
    while (ring.reader.peek() != nullptr) {
      ring.reader.take(taken);
      EXPECT_EQ(taken, payload);
    }
    EXPECT_TRUE(ring.reader.must_ring());
    EXPECT_FALSE(ring.reader.must_ring());
    EXPECT_TRUE(ring.writer.write(message_of(n_bytes, 0), "", payload));
    ASSERT_NE(ring.reader.peek(), nullptr);
    ring.reader.take(taken);
    EXPECT_EQ(ring.reader.peek(), nullptr);
    EXPECT_FALSE(ring.reader.must_ring());
  }
}

TEST(Ring, GivesAllRoomBackBeforeItsReaderWaits) {
  Ends ring;
  const std::vector<std::byte> payload = bytes_of(100, 1);
  std::vector<std::byte> taken(100);
  ASSERT_TRUE(ring.writer.write(message_of(100, 0), "", payload));
  ASSERT_NE(ring.reader.peek(), nullptr);
  ring.reader.take(taken);
  EXPECT_EQ(ring.reader.peek(), nullptr);
  EXPECT_EQ(ring.memory.n_cells_taken.load(), 1U);
  EXPECT_EQ(ring.memory.n_bytes_taken.load(), 100U);
}

// Invalid data from another process must not corrupt the reader.
TEST(Ring, RefusesWhatIsNoPacket) {
  const auto expect_refused = [](const auto& spoil) {
    Ends ring;
    const std::vector<std::byte> payload = bytes_of(100, 1);
    ASSERT_TRUE(ring.writer.write(message_of(100, 0), "", payload));
    spoil(ring.memory.cells[0]);
    try {
      (void)ring.reader.peek();
      ADD_FAILURE() << "taken for a packet";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
      EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos);
    }
  };
  expect_refused([](RingCell& cell) { cell.kind = 0; });
  expect_refused([](RingCell& cell) { cell.kind = 200; });
  expect_refused([](RingCell& cell) { cell.dtype = kDTypeCount; });
  expect_refused([](RingCell& cell) { cell.memory = 2; });
  expect_refused([](RingCell& cell) { cell.n_label_bytes = 255; });
  expect_refused([](RingCell& cell) { cell.n_bytes = 99; });
  expect_refused([](RingCell& cell) { cell.n_bytes = 0xFFFFFFFF; });
  expect_refused([](RingCell& cell) { cell.count = -1; });
  expect_refused([](RingCell& cell) { cell.count = INT64_MAX; });
  expect_refused([](RingCell& cell) {
    cell.kind = static_cast<std::uint8_t>(PacketKind::kData);
    cell.n_bytes = 1 << 20;  // More than a ring holds.
  });
}

TEST(Ring, CarriesAllBetweenTwoThreads) {
  Ends ring;
  constexpr int kPackets = 20'000;
  std::thread writer([&] {
    for (int tag = 0; tag < kPackets; ++tag) {
      const auto n_bytes = static_cast<std::size_t>(tag * 37 % 3000);
      const std::vector<std::byte> payload = bytes_of(n_bytes, tag);
      while (!ring.writer.write(message_of(n_bytes, tag), "", payload)) {
        std::this_thread::yield();
      }
    }
  });
  for (int tag = 0; tag < kPackets; ++tag) {
    const Packet* packet = ring.reader.peek();
    while (packet == nullptr) {
      std::this_thread::yield();
      packet = ring.reader.peek();
    }
    ASSERT_EQ(packet->tag, tag);
    std::vector<std::byte> taken(packet->n_bytes);
    ring.reader.take(taken);
    ASSERT_EQ(taken, bytes_of(taken.size(), tag));
  }
  writer.join();
}

}  // namespace
}  // namespace unisono::shm
