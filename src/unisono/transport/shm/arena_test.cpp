#include "unisono/transport/shm/arena.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/transport/shm/testing/page_advice.h"

namespace unisono::shm {
namespace {

using testing::is_to_be_huge;

constexpr std::int64_t kMiB = 1 << 20;

TEST(Arena, AMappedCopySeesWhatTheOwnerWrites) {
  const Arena mine = Arena::create(kMiB);
  const Arena peers = Arena::map(Fd(::dup(mine.fd())), kMiB);
  ASSERT_NE(mine.data(), peers.data());
  std::strcpy(reinterpret_cast<char*>(mine.data() + 100), "hello");
  EXPECT_STREQ(reinterpret_cast<const char*>(peers.data() + 100), "hello");
}

// The address bits 12 to 27 may select lines of the CPU's first-level cache. The bits below 21 are
// within a huge page.
TEST(Arena, EachBeginsAtAHugePageOfItsOwn) {
  constexpr std::uintptr_t kHugePage = 2 * kMiB;
  constexpr std::uintptr_t kSpan = 256 * kMiB;
  std::vector<Arena> arenas;
  std::set<std::uintptr_t> places;
  for (int i = 0; i < 100; ++i) {
    arenas.push_back(i % 2 == 0 ? Arena::create(kMiB + 1)
                                : Arena::map(Fd(::dup(arenas.back().fd())), kMiB + 1));
    const auto address = reinterpret_cast<std::uintptr_t>(arenas.back().data());
    EXPECT_EQ(address % kHugePage, 0);
    EXPECT_TRUE(places.insert(address % kSpan).second);
  }
}

TEST(Arena, AFileOfAnotherSizeIsRefused) {
  const Arena mine = Arena::create(kMiB);
  try {
    (void)Arena::map(Fd(::dup(mine.fd())), 2 * kMiB);
    FAIL() << "a mapping behind the end of the file would be a bus error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
  }
}

TEST(Arena, OffsetsAreThoseOfWholeBuffersInside) {
  const Arena arena = Arena::create(kMiB);
  EXPECT_EQ(arena.offset_of(arena.data() + 64, 8), 64);
  EXPECT_EQ(arena.offset_of(arena.data(), kMiB), 0);
  EXPECT_EQ(arena.offset_of(arena.data() + kMiB, 0), kMiB);
  EXPECT_FALSE(arena.offset_of(arena.data() + kMiB - 7, 8).has_value());
  EXPECT_FALSE(arena.offset_of(arena.data() - 1, 1).has_value());
  EXPECT_FALSE(arena.offset_of(&arena, 8).has_value());
}

TEST(Arena, ABufferLargerThanTheArenaIsOutside) {
  const Arena arena = Arena::create(1 << 20);
  const std::byte* const above = arena.data() + (1 << 21);
  EXPECT_EQ(arena.offset_of(above, 1 << 22), std::nullopt);
  EXPECT_EQ(arena.offset_of(arena.data(), (1 << 20) + 1), std::nullopt);
}

TEST(Arena, HugePagesAreAskedForWhereTheyArePreferred) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) {
    GTEST_SKIP() << "this kernel has no transparent huge pages";
  }
  const Arena arena = Arena::create(64 * kMiB);
  if (!is_to_be_huge(arena.data())) {
    GTEST_SKIP() << "/proc/self/smaps has no flags here";
  }
  arena.prefer_huge_pages(8 * kMiB + 100, 16 * kMiB);
  EXPECT_EQ(is_to_be_huge(arena.data() + 8 * kMiB - 1), false);
  EXPECT_EQ(is_to_be_huge(arena.data() + 8 * kMiB + 100), true);
  EXPECT_EQ(is_to_be_huge(arena.data() + 24 * kMiB + 99), true);
  EXPECT_EQ(is_to_be_huge(arena.data() + 25 * kMiB), false);
  arena.prefer_huge_pages(63 * kMiB, kMiB);
  EXPECT_EQ(is_to_be_huge(arena.data() + 64 * kMiB - 1), true);
}

TEST(Heap, ReusedMemoryIsZero) {
  const Arena arena = Arena::create(kMiB);
  Heap heap(arena);
  const std::int64_t offset = heap.try_allocate(10000).value();
  std::memset(arena.data() + offset, 1, 10000);
  heap.free(offset);
  ASSERT_EQ(heap.try_allocate(10000), offset);
  EXPECT_TRUE(std::all_of(arena.data() + offset, arena.data() + offset + 10000, [](std::byte b) {
    return b == std::byte{0};
  }));
}

TEST(Heap, SaysNoWhenNothingFits) {
  const Arena arena = Arena::create(kMiB);
  Heap heap(arena);
  EXPECT_FALSE(heap.try_allocate(kMiB + 1).has_value());
  EXPECT_FALSE(heap.try_allocate(INT64_MAX).has_value());
  ASSERT_TRUE(heap.try_allocate(kMiB).has_value());
  EXPECT_FALSE(heap.try_allocate(1).has_value());
}

TEST(Heap, PartsNeverOverlapAndGapsMergeAgain) {
  const Arena arena = Arena::create(kMiB);
  Heap heap(arena);
  std::mt19937 random(7);
  std::vector<std::pair<std::int64_t, std::int64_t>> parts;
  for (int step = 0; step < 2000; ++step) {
    if (parts.empty() || random() % 2 == 0) {
      const std::int64_t size = static_cast<std::int64_t>(random() % 100000);
      const std::optional<std::int64_t> offset = heap.try_allocate(size);
      if (offset) {
        EXPECT_LE(*offset + size, kMiB);
        for (const auto& [other, other_size] : parts) {
          EXPECT_TRUE(*offset + size <= other || other + other_size <= *offset);
        }
        parts.emplace_back(*offset, size);
      }
    } else {
      const std::size_t index = random() % parts.size();
      heap.free(parts[index].first);
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(index));
    }
  }
  for (const auto& part : parts) {
    heap.free(part.first);
  }
  EXPECT_TRUE(heap.try_allocate(kMiB).has_value());
}

TEST(Heap, AWrongFreeIsRefused) {
  const Arena arena = Arena::create(kMiB);
  Heap heap(arena);
  EXPECT_THROW(heap.free(4096), Error);
}

}  // namespace
}  // namespace unisono::shm
