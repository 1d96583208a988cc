#include "unisono/transport/shm/lane.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/transport/packet.h"
#include "unisono/transport/shm/arena.h"

namespace unisono::shm {
namespace {

using transport::Packet;
using transport::PacketKind;

// A lane as in an arena, with both ends.
struct Ends {
  Arena arena = Arena::create(1 << 20);
  LaneMemory& memory = *reinterpret_cast<LaneMemory*>(arena.data());
  LaneWriter writer{memory};
  LaneReader reader{memory, "rank 1"};
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

TEST(Lane, CarriesPacketsOfAllSizesWithTheirLabelsInOrder) {
  Ends lane;
  const std::vector<std::string> labels{"", "w", std::string(40, 'l'), std::string(120, 'x')};
  int tag = 0;
  // Often enough to wrap around cells and bytes.
  for (int round = 0; round < 40; ++round) {
    for (const std::size_t n_bytes : {0U, 1U, 39U, 40U, 41U, 5000U, 65536U}) {
      for (const std::string& label : labels) {
        const std::vector<std::byte> payload = bytes_of(n_bytes, tag);
        ASSERT_TRUE(lane.writer.write(message_of(n_bytes, tag), label, payload));
        const Packet* const packet = lane.reader.peek();
        ASSERT_NE(packet, nullptr);
        EXPECT_EQ(packet->tag, tag);
        EXPECT_EQ(packet->n_bytes, n_bytes);
        EXPECT_EQ(lane.reader.label(), label);
        std::vector<std::byte> taken(n_bytes);
        lane.reader.take(taken);
        EXPECT_EQ(taken, payload);
        ++tag;
      }
    }
  }
  EXPECT_EQ(lane.reader.peek(), nullptr);
}

TEST(Lane, CarriesNumberAndPlaceOfAnnouncements) {
  Ends lane;
  const Packet sent{.kind = PacketKind::kAnnounce,
                    .dtype = DType::kFloat64,
                    .memory = transport::PacketMemory::kArena,
                    .tag = 3,
                    .number = 77,
                    .count = std::int64_t{1} << 40,
                    .place = std::int64_t{1} << 50};
  ASSERT_TRUE(lane.writer.write(sent, "of the model", {}));
  const Packet* const packet = lane.reader.peek();
  ASSERT_NE(packet, nullptr);
  EXPECT_EQ(packet->memory, sent.memory);
  EXPECT_EQ(packet->number, sent.number);
  EXPECT_EQ(packet->count, sent.count);
  EXPECT_EQ(packet->place, sent.place);
  EXPECT_EQ(lane.reader.label(), "of the model");
}

TEST(Lane, IsFullAtItsLimitsAndTheReaderHearsWhoWaits) {
  for (const std::size_t n_bytes : {8U, 10'000U}) {
    Ends lane;
    const std::vector<std::byte> payload = bytes_of(n_bytes, 1);
    std::size_t n_written = 0;
    while (lane.writer.write(message_of(n_bytes, 0), "", payload)) {
      ++n_written;
    }
    EXPECT_EQ(n_written, n_bytes == 8 ? kLaneCells : kLaneBytes / n_bytes);
    std::vector<std::byte> taken(n_bytes);
    // The room is given back in parts, and at the latest when nothing else is there.
    while (lane.reader.peek() != nullptr) {
      lane.reader.take(taken);
      EXPECT_EQ(taken, payload);
    }
    EXPECT_TRUE(lane.reader.must_ring());
    EXPECT_FALSE(lane.reader.must_ring());
    EXPECT_TRUE(lane.writer.write(message_of(n_bytes, 0), "", payload));
    ASSERT_NE(lane.reader.peek(), nullptr);
    lane.reader.take(taken);
    EXPECT_EQ(lane.reader.peek(), nullptr);
    EXPECT_FALSE(lane.reader.must_ring());
  }
}

TEST(Lane, GivesAllRoomBackBeforeItsReaderWaits) {
  Ends lane;
  const std::vector<std::byte> payload = bytes_of(100, 1);
  std::vector<std::byte> taken(100);
  ASSERT_TRUE(lane.writer.write(message_of(100, 0), "", payload));
  ASSERT_NE(lane.reader.peek(), nullptr);
  lane.reader.take(taken);
  EXPECT_EQ(lane.reader.peek(), nullptr);
  EXPECT_EQ(lane.memory.n_cells_taken.load(), 1U);
  EXPECT_EQ(lane.memory.n_bytes_taken.load(), 100U);
}

// What another process may have written by mistake must not lead the reader astray.
TEST(Lane, RefusesWhatIsNoPacket) {
  const auto expect_refused = [](const auto& spoil) {
    Ends lane;
    const std::vector<std::byte> payload = bytes_of(100, 1);
    ASSERT_TRUE(lane.writer.write(message_of(100, 0), "", payload));
    spoil(lane.memory.cells[0]);
    try {
      (void)lane.reader.peek();
      ADD_FAILURE() << "taken for a packet";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
      EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos);
    }
  };
  expect_refused([](LaneCell& cell) { cell.kind = 0; });
  expect_refused([](LaneCell& cell) { cell.kind = 200; });
  expect_refused([](LaneCell& cell) { cell.dtype = kDTypeCount; });
  expect_refused([](LaneCell& cell) { cell.memory = 2; });
  expect_refused([](LaneCell& cell) { cell.n_label_bytes = 255; });
  expect_refused([](LaneCell& cell) { cell.n_bytes = 99; });
  expect_refused([](LaneCell& cell) { cell.n_bytes = 0xFFFFFFFF; });
  expect_refused([](LaneCell& cell) { cell.count = -1; });
  expect_refused([](LaneCell& cell) { cell.count = INT64_MAX; });
  expect_refused([](LaneCell& cell) {
    cell.kind = static_cast<std::uint8_t>(PacketKind::kData);
    cell.n_bytes = 1 << 20;  // More than a lane holds.
  });
}

TEST(Lane, CarriesAllBetweenTwoThreads) {
  Ends lane;
  constexpr int kPackets = 20'000;
  std::thread writer([&] {
    for (int tag = 0; tag < kPackets; ++tag) {
      const auto n_bytes = static_cast<std::size_t>(tag * 37 % 3000);
      const std::vector<std::byte> payload = bytes_of(n_bytes, tag);
      while (!lane.writer.write(message_of(n_bytes, tag), "", payload)) {
        std::this_thread::yield();
      }
    }
  });
  for (int tag = 0; tag < kPackets; ++tag) {
    const Packet* packet = lane.reader.peek();
    while (packet == nullptr) {
      std::this_thread::yield();
      packet = lane.reader.peek();
    }
    ASSERT_EQ(packet->tag, tag);
    std::vector<std::byte> taken(packet->n_bytes);
    lane.reader.take(taken);
    ASSERT_EQ(taken, bytes_of(taken.size(), tag));
  }
  writer.join();
}

}  // namespace
}  // namespace unisono::shm
