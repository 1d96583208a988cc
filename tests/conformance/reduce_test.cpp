// reduce and reduce_scatter: the canonical tree's bits on every layout, and no other memory
// changes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/reduction.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

#include "blocks.h"
#include "reference.h"
#include "support/ranks.h"

namespace unisono {
namespace {

using test::contribution;
using test::cut;
using test::Memory;
using test::one_node;
using test::run_ranks;
using test::sum;
using test::TestMemory;
using test::uneven_counts;

using Bytes = std::vector<std::byte>;

const std::vector<std::int64_t> kCounts{0, 1, 6, 1000, 4097, 65537, 300001};
constexpr std::int64_t kLargestForManyRanks = 70000;

bool is_too_large(std::int64_t count, int world_size) {
  return count > kLargestForManyRanks && world_size > 4;
}

// Returns the part of `bytes` that begins at element `begin`.
Bytes part_of(const Bytes& bytes, DType dtype, std::int64_t begin, std::int64_t count) {
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  return {bytes.begin() + begin * size, bytes.begin() + (begin + count) * size};
}

class ReduceWorlds : public ::testing::TestWithParam<int> {};

TEST_P(ReduceWorlds, TheRootGetsTheCanonicalTreeAndNoOtherBufferChanges) {
  test::Expected expected(GetParam());
  for (const test::World& world : test::worlds_of(GetParam())) {
    run_ranks(world, [&](ProcessGroup& group) {
      unsigned seed = 0;
      for (const std::int64_t count : kCounts) {
        for (const Memory memory : {Memory::kPrivate, Memory::kSymmetric}) {
          if (is_too_large(count, group.world_size())) {
            continue;
          }
          const int root = static_cast<int>(++seed) % group.world_size();
          const bool is_root = group.rank() == root;
          const Bytes mine = contribution(DType::kFloat32, count, group.rank(), seed);
          const TestMemory in(group, memory, DType::kFloat32, mine);
          const TestMemory out(group, memory, is_root ? count : 0, DType::kFloat32);
          group.reduce(in.buffer(), is_root ? out.buffer() : Buffer(), {.root = root});
          ASSERT_EQ(in.bytes(), mine) << "count " << count << " root " << root;
          if (is_root) {
            ASSERT_EQ(out.bytes(), expected.all_reduce(DType::kFloat32, kSum, count, seed))
                << "count " << count << " root " << root;
          }
        }
      }
    });
  }
}

TEST_P(ReduceWorlds, EachRankGetsItsBlockOfTheCanonicalTree) {
  const DType dtype =
      test::is_allowed(DType::kBFloat16, ReduceKind::kAvg) ? DType::kBFloat16 : DType::kFloat32;
  test::Expected expected(GetParam());
  for (const test::World& world : test::worlds_of(GetParam())) {
    run_ranks(world, [&](ProcessGroup& group) {
      unsigned seed = 100;
      for (const std::int64_t count : kCounts) {
        for (const Memory memory : {Memory::kPrivate, Memory::kSymmetric}) {
          if (is_too_large(count, group.world_size())) {
            continue;
          }
          const std::int64_t total = count * group.world_size();
          const Bytes mine = contribution(dtype, total, group.rank(), ++seed);
          const TestMemory in(group, memory, dtype, mine);
          const TestMemory out(group, memory, count, dtype);
          group.reduce_scatter(in.buffer(), out.buffer(), {.op = kAvg});
          const Bytes& whole = expected.all_reduce(dtype, kAvg, total, seed);
          ASSERT_EQ(out.bytes(), part_of(whole, dtype, group.rank() * count, count))
              << "count " << count;
          ASSERT_EQ(in.bytes(), mine);
        }
      }
    });
  }
}

TEST_P(ReduceWorlds, ReduceScatterTakesUnevenBlocksInABufferOrAList) {
  test::Expected expected(GetParam());
  for (const test::World& world : test::worlds_of(GetParam())) {
    run_ranks(world, [&](ProcessGroup& group) {
      unsigned seed = 200;
      for (const std::int64_t scale : kCounts) {
        for (const Memory memory : {Memory::kPrivate, Memory::kSymmetric}) {
          if (is_too_large(scale, group.world_size())) {
            continue;
          }
          const auto counts = uneven_counts(group.world_size(), scale, ++seed);
          const auto rank = static_cast<std::size_t>(group.rank());
          const std::int64_t begin =
              sum({counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(rank)});
          const std::int64_t total = sum(counts);
          const Bytes mine = contribution(DType::kFloat64, total, group.rank(), seed);
          const TestMemory in(group, memory, DType::kFloat64, mine);
          const Bytes& whole = expected.all_reduce(DType::kFloat64, kSum, total, seed);
          const Bytes wanted = part_of(whole, DType::kFloat64, begin, counts[rank]);
          const TestMemory out(group, memory, counts[rank], DType::kFloat64);
          group.reduce_scatter(in.buffer(), out.buffer(), {.counts = counts});
          ASSERT_EQ(out.bytes(), wanted);
          // In place: the rank's own block receives the result.
          const auto list = cut(in.buffer(), counts);
          group.reduce_scatter(list, list[rank]);
          ASSERT_EQ(part_of(in.bytes(), DType::kFloat64, begin, counts[rank]), wanted);
        }
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, ReduceWorlds, ::testing::Values(1, 2, 3, 4, 5, 8));

TEST(Reduce, AsTheTutorialsPrintIt) {
  run_ranks(one_node(4), [](ProcessGroup& group) {
    float mine = static_cast<float>(group.rank()) + 1;
    float total = -1;
    group.reduce(as_buffer(std::span(&mine, 1)), as_buffer(std::span(&total, 1)), {.root = 1});
    EXPECT_EQ(mine, static_cast<float>(group.rank()) + 1);
    EXPECT_EQ(total, group.rank() == 1 ? 10.0F : -1.0F) << "another rank's output was written";
  });
}

TEST(Reduce, TheRootsInputMayBeItsOutput) {
  for (const test::World& world : {one_node(3), test::World{.nodes = {"a", "b", "a"}}}) {
    run_ranks(world, [](ProcessGroup& group) {
      for (const std::size_t count : {10U, 100000U}) {
        std::vector<std::int64_t> values(count, group.rank() + 1);
        const Buffer buffer = as_buffer(std::span(values));
        group.reduce(buffer, buffer, {.root = 2});
        EXPECT_EQ(values,
                  std::vector<std::int64_t>(count, group.rank() == 2 ? 6 : group.rank() + 1));
      }
    });
  }
}

}  // namespace
}  // namespace unisono
