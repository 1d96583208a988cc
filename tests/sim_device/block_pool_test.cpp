#include "sim_device/block_pool.h"

#include <chrono>
#include <future>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim_device/machine.h"

namespace sim {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr StreamKey kMain{1, 0};
constexpr StreamKey kSide{1, 2};

class BlockPoolTest : public ::testing::Test {
 protected:
  // Launches a task that writes `value` to the first bytes of the block, or reads them.
  void write(StreamKey stream, const BlockPool::Block* block, int value) {
    int* bytes = alias(block);
    const Access access = access_of(block, true);
    machine_.streams.get(stream).launch([bytes, value] { *bytes = value; }, {&access, 1});
  }

  void read(StreamKey stream, const BlockPool::Block* block, int& value) {
    const int* bytes = alias(block);
    const Access access = access_of(block, false);
    machine_.streams.get(stream).launch([bytes, &value] { value = *bytes; }, {&access, 1});
  }

  void order(StreamKey earlier, StreamKey later) {
    machine_.streams.get(later).wait(machine_.streams.get(earlier).record());
  }

  // Holds a stream back until the returned promise is set.
  std::promise<void> hold(StreamKey stream) {
    std::promise<void> go;
    machine_.streams.get(stream).launch([gone = go.get_future().share()] { gone.wait(); }, {});
    return go;
  }

  std::vector<std::string> races() {
    machine_.synchronize(1);
    return machine_.context.checker.take_races();
  }

  int* alias(const BlockPool::Block* block) {
    return static_cast<int*>(machine_.memory.alias(BlockPool::address(*block)));
  }

  Machine machine_{Options{}};
  BlockPool& pool_ = machine_.blocks;

 private:
  static Access access_of(const BlockPool::Block* block, bool is_write) {
    const auto begin = reinterpret_cast<std::uintptr_t>(BlockPool::address(*block));
    return {begin, begin + sizeof(int), is_write, is_write ? "write" : "read"};
  }
};

TEST_F(BlockPoolTest, FreshAndReleasedMemoryHasAllBitsSet) {
  BlockPool::Block* block = pool_.allocate(kMain, 100);
  int fresh = 0;
  int written = 0;
  read(kMain, block, fresh);
  write(kMain, block, 7);
  read(kMain, block, written);
  const int* bytes = alias(block);
  pool_.release(block);
  EXPECT_THAT(races(), IsEmpty());
  EXPECT_EQ(fresh, -1);
  EXPECT_EQ(written, 7);
  EXPECT_EQ(*bytes, -1);
}

TEST_F(BlockPoolTest, AReleasedBlockIsUsedAgainByItsStreamAlone) {
  BlockPool::Block* block = pool_.allocate(kMain, 100);
  void* address = BlockPool::address(*block);
  pool_.release(block);
  BlockPool::Block* other = pool_.allocate(kSide, 100);
  EXPECT_NE(BlockPool::address(*other), address);
  block = pool_.allocate(kMain, 120);
  EXPECT_EQ(BlockPool::address(*block), address);
  EXPECT_EQ(pool_.n_made(), 2U);
  pool_.release(block);
  pool_.release(other);
  EXPECT_THAT(races(), IsEmpty());
}

TEST_F(BlockPoolTest, AMissingRecordStreamIsARaceAndShowsInTheData) {
  BlockPool::Block* block = pool_.allocate(kMain, 4);
  write(kMain, block, 7);
  order(kMain, kSide);
  std::promise<void> go = hold(kSide);
  int value = 0;
  read(kSide, block, value);
  pool_.release(block);
  machine_.streams.get(kMain).synchronize();
  go.set_value();
  const auto found = races();
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_THAT(found[0], HasSubstr("the release of the memory writes on sim:1 stream 0"));
  EXPECT_EQ(value, -1);
}

TEST_F(BlockPoolTest, ARecordedStreamKeepsTheBlock) {
  BlockPool::Block* block = pool_.allocate(kMain, 4);
  void* address = BlockPool::address(*block);
  write(kMain, block, 7);
  order(kMain, kSide);
  std::promise<void> go = hold(kSide);
  int value = 0;
  read(kSide, block, value);
  EXPECT_TRUE(pool_.record_stream(address, kSide));
  pool_.release(block);
  BlockPool::Block* other = pool_.allocate(kMain, 4);
  EXPECT_NE(BlockPool::address(*other), address) << "used again before the side stream has passed";
  go.set_value();
  // Not a wait of the host for the checker: only the pool knows that the side stream has passed.
  machine_.streams.get(kSide).record()->wait(std::chrono::seconds(60));
  block = pool_.allocate(kMain, 4);
  EXPECT_EQ(BlockPool::address(*block), address);
  EXPECT_EQ(value, 7);
  write(kMain, block, 8);
  EXPECT_THAT(races(), IsEmpty());
  pool_.release(block);
  pool_.release(other);
}

// The tensor is held until the owner has waited: no record_stream() is necessary.
TEST_F(BlockPoolTest, AnEventBeforeTheReleaseSuffices) {
  BlockPool::Block* block = pool_.allocate(kMain, 4);
  write(kMain, block, 7);
  order(kMain, kSide);
  int value = 0;
  read(kSide, block, value);
  order(kSide, kMain);
  pool_.release(block);
  EXPECT_THAT(races(), IsEmpty());
  EXPECT_EQ(value, 7);
}

TEST_F(BlockPoolTest, PinnedMemoryWaitsForRecordedStreams) {
  BlockPool::Block* block = pool_.allocate_pinned(4);
  auto* bytes = static_cast<int*>(BlockPool::address(*block));
  EXPECT_EQ(*bytes, -1);
  EXPECT_TRUE(pool_.is_pinned(bytes));
  *bytes = 7;
  std::promise<void> go = hold(kMain);
  int value = 0;
  machine_.streams.get(kMain).launch([&] { value = *bytes; }, {});
  EXPECT_TRUE(pool_.record_stream(bytes, kMain));
  pool_.release(block);
  BlockPool::Block* other = pool_.allocate_pinned(4);
  EXPECT_NE(BlockPool::address(*other), bytes);
  go.set_value();
  EXPECT_THAT(races(), IsEmpty());
  EXPECT_EQ(value, 7);
  block = pool_.allocate_pinned(4);
  EXPECT_EQ(BlockPool::address(*block), bytes);
  EXPECT_EQ(*bytes, -1);
  pool_.release(block);
  pool_.release(other);
}

TEST_F(BlockPoolTest, KnowsItsOwnMemory) {
  int local = 0;
  EXPECT_FALSE(pool_.is_pinned(&local));
  EXPECT_FALSE(pool_.record_stream(&local, kMain));
  BlockPool::Block* block = pool_.allocate(kMain, 4);
  EXPECT_FALSE(pool_.is_pinned(BlockPool::address(*block)));
  EXPECT_EQ(machine_.memory.device_of(BlockPool::address(*block)), 1);
  pool_.release(block);
}

TEST_F(BlockPoolTest, CountsBytes) {
  BlockPool::Block* small = pool_.allocate(kMain, 1);
  BlockPool::Block* large = pool_.allocate(kMain, (std::size_t{1} << 20) + 1);
  EXPECT_EQ(pool_.usage(1).allocated, 512U + (2U << 20));
  EXPECT_EQ(pool_.usage(1).n_blocks, 2U);
  pool_.release(large);
  EXPECT_EQ(pool_.usage(1).allocated, 512U);
  EXPECT_EQ(pool_.usage(1).peak_allocated, 512U + (2U << 20));
  EXPECT_EQ(pool_.usage(1).reserved, 512U + (2U << 20));
  pool_.reset_peak(1);
  EXPECT_EQ(pool_.usage(1).peak_allocated, 512U);
  EXPECT_EQ(pool_.usage(0).reserved, 0U);
  pool_.release(small);
}

TEST_F(BlockPoolTest, ADeviceHasEightGibibytes) {
  try {
    pool_.allocate(kMain, kBytesPerDevice + 1);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("out of memory"));
  }
}

using DeviceMemoryDeathTest = BlockPoolTest;

TEST_F(DeviceMemoryDeathTest, AHostAccessNamesTheDevice) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        static Machine* const machine = new Machine{Options{}};
        report_host_accesses(machine->memory);
        BlockPool::Block* block = machine->blocks.allocate({2, 0}, 4);
        *static_cast<volatile int*>(BlockPool::address(*block)) = 1;
      },
      "host code touched memory of device sim:2");
}

TEST_F(BlockPoolTest, HostMemoryHasNoAlias) {
  int local = 0;
  EXPECT_FALSE(machine_.memory.contains(&local));
  EXPECT_THROW(static_cast<void>(machine_.memory.alias(&local)), Error);
}

}  // namespace
}  // namespace sim
