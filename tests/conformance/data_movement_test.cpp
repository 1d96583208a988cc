// all_gather, gather, scatter and all_to_all: every byte arrives at its place, on any layout, for
// memory of any kind.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"

#include "blocks.h"
#include "reference.h"
#include "support/ranks.h"

namespace unisono {
namespace {

using test::contribution;
using test::cut;
using test::join;
using test::Memory;
using test::one_node;
using test::run_ranks;
using test::sum;
using test::TestMemory;
using test::uneven_counts;

using Bytes = std::vector<std::byte>;

// Sizes around the limits of a slot (16 KiB) and of windows.
const std::vector<std::int64_t> kCounts{0, 1, 63, 2048, 4097, 70001, 200003};
constexpr std::int64_t kLargestForManyRanks = 70001;

struct Trial {
  std::int64_t count;
  Memory memory;
  unsigned seed;
};

class MovementWorlds : public ::testing::TestWithParam<int> {
 protected:
  // Runs `check` on every rank, for each layout, count and kind of memory.
  static void on_all_layouts(const std::function<void(ProcessGroup&, const Trial&)>& check) {
    for (const test::World& world : test::worlds_of(GetParam())) {
      run_ranks(world, [&](ProcessGroup& group) {
        unsigned seed = 0;
        for (const std::int64_t count : kCounts) {
          for (const Memory memory : {Memory::kPrivate, Memory::kSymmetric}) {
            if (count <= kLargestForManyRanks || group.world_size() <= 4) {
              check(group, {.count = count, .memory = memory, .seed = ++seed});
            }
          }
        }
      });
    }
  }
};

// Returns the data that rank `from` sends to rank `to`.
Bytes message(std::int64_t count, int from, int to, unsigned seed) {
  return contribution(DType::kInt32, count, from * 64 + to, seed);
}

TEST_P(MovementWorlds, AllGatherGivesEveryRanksBlockToAll) {
  on_all_layouts([](ProcessGroup& group, const Trial& trial) {
    const Bytes mine = contribution(DType::kFloat32, trial.count, group.rank(), trial.seed);
    const TestMemory in(group, trial.memory, DType::kFloat32, mine);
    const TestMemory out(group, trial.memory, trial.count * group.world_size(), DType::kFloat32);
    group.all_gather(in.buffer(), out.buffer());
    std::vector<Bytes> wanted;
    for (int rank = 0; rank < group.world_size(); ++rank) {
      wanted.push_back(contribution(DType::kFloat32, trial.count, rank, trial.seed));
    }
    ASSERT_EQ(out.bytes(), join(wanted)) << "count " << trial.count;
    ASSERT_EQ(in.bytes(), mine);
  });
}

TEST_P(MovementWorlds, AllGatherTakesUnevenBlocksInABufferOrAList) {
  on_all_layouts([](ProcessGroup& group, const Trial& trial) {
    const auto counts = uneven_counts(group.world_size(), trial.count, trial.seed);
    const auto rank = static_cast<std::size_t>(group.rank());
    std::vector<Bytes> blocks;
    for (int from = 0; from < group.world_size(); ++from) {
      blocks.push_back(
          contribution(DType::kUInt8, counts[static_cast<std::size_t>(from)], from, trial.seed));
    }
    const TestMemory in(group, trial.memory, DType::kUInt8, blocks[rank]);
    const TestMemory out(group, trial.memory, sum(counts), DType::kUInt8);
    group.all_gather(in.buffer(), out.buffer(), {.counts = counts});
    ASSERT_EQ(out.bytes(), join(blocks));
    const TestMemory apart(group, trial.memory, sum(counts), DType::kUInt8);
    // In place: the rank's own block is already at its place in the output.
    std::vector<Buffer> list = cut(apart.buffer(), counts);
    std::copy(blocks[rank].begin(), blocks[rank].end(), static_cast<std::byte*>(list[rank].data));
    group.all_gather(list[rank], list);
    ASSERT_EQ(apart.bytes(), join(blocks));
  });
}

TEST_P(MovementWorlds, GatherGivesEveryRanksBlockToTheRootAlone) {
  on_all_layouts([](ProcessGroup& group, const Trial& trial) {
    const int root = static_cast<int>(trial.seed) % group.world_size();
    const bool is_root = group.rank() == root;
    const TestMemory in(group,
                        trial.memory,
                        DType::kFloat64,
                        contribution(DType::kFloat64, trial.count, group.rank(), trial.seed));
    const TestMemory out(
        group, trial.memory, is_root ? trial.count * group.world_size() : 0, DType::kFloat64);
    group.gather(in.buffer(), is_root ? out.buffer() : Buffer(), {.root = root});
    std::vector<Bytes> wanted;
    for (int rank = 0; is_root && rank < group.world_size(); ++rank) {
      wanted.push_back(contribution(DType::kFloat64, trial.count, rank, trial.seed));
    }
    ASSERT_EQ(out.bytes(), join(wanted)) << "count " << trial.count << " root " << root;
  });
}

TEST_P(MovementWorlds, GatherTakesUnevenBlocksInABufferOrAList) {
  on_all_layouts([](ProcessGroup& group, const Trial& trial) {
    const int root = static_cast<int>(trial.seed) % group.world_size();
    const bool is_root = group.rank() == root;
    const auto counts = uneven_counts(group.world_size(), trial.count, trial.seed);
    const std::int64_t mine = counts[static_cast<std::size_t>(group.rank())];
    const TestMemory in(group,
                        trial.memory,
                        DType::kInt16,
                        contribution(DType::kInt16, mine, group.rank(), trial.seed));
    std::vector<Bytes> wanted;
    for (int rank = 0; is_root && rank < group.world_size(); ++rank) {
      wanted.push_back(
          contribution(DType::kInt16, counts[static_cast<std::size_t>(rank)], rank, trial.seed));
    }
    const TestMemory out(group, trial.memory, is_root ? sum(counts) : 0, DType::kInt16);
    group.gather(in.buffer(), is_root ? out.buffer() : Buffer(), {.root = root, .counts = counts});
    ASSERT_EQ(out.bytes(), join(wanted));
    const TestMemory apart(group, trial.memory, is_root ? sum(counts) : 0, DType::kInt16);
    const auto list = is_root ? cut(apart.buffer(), counts) : std::vector<Buffer>();
    group.gather(in.buffer(), list, {.root = root});
    ASSERT_EQ(apart.bytes(), join(wanted));
  });
}

TEST_P(MovementWorlds, ScatterGivesEachRankItsBlockOfTheRoot) {
  on_all_layouts([](ProcessGroup& group, const Trial& trial) {
    const int root = static_cast<int>(trial.seed) % group.world_size();
    const bool is_root = group.rank() == root;
    const Bytes wanted = message(trial.count, root, group.rank(), trial.seed);
    std::vector<Bytes> blocks;
    for (int rank = 0; is_root && rank < group.world_size(); ++rank) {
      blocks.push_back(message(trial.count, root, rank, trial.seed));
    }
    const TestMemory in(group, trial.memory, DType::kInt32, join(blocks));
    const TestMemory out(group, trial.memory, trial.count, DType::kInt32);
    group.scatter(is_root ? in.buffer() : Buffer(), out.buffer(), {.root = root});
    ASSERT_EQ(out.bytes(), wanted) << "count " << trial.count << " root " << root;
  });
}

TEST_P(MovementWorlds, ScatterTakesUnevenBlocksInABufferOrAList) {
  on_all_layouts([](ProcessGroup& group, const Trial& trial) {
    const int root = static_cast<int>(trial.seed) % group.world_size();
    const bool is_root = group.rank() == root;
    const auto counts = uneven_counts(group.world_size(), trial.count, trial.seed);
    const std::int64_t mine = counts[static_cast<std::size_t>(group.rank())];
    const Bytes wanted = message(mine, root, group.rank(), trial.seed);
    std::vector<Bytes> blocks;
    for (int rank = 0; is_root && rank < group.world_size(); ++rank) {
      blocks.push_back(message(counts[static_cast<std::size_t>(rank)], root, rank, trial.seed));
    }
    const TestMemory in(group, trial.memory, DType::kInt32, join(blocks));
    const TestMemory out(group, trial.memory, mine, DType::kInt32);
    group.scatter(is_root ? in.buffer() : Buffer(), out.buffer(), {.root = root, .counts = counts});
    ASSERT_EQ(out.bytes(), wanted);
    const TestMemory again(group, trial.memory, mine, DType::kInt32);
    const auto list = is_root ? cut(in.buffer(), counts) : std::vector<Buffer>();
    group.scatter(list, again.buffer(), {.root = root});
    ASSERT_EQ(again.bytes(), wanted);
  });
}

TEST_P(MovementWorlds, AllToAllGivesEachRankABlockOfEach) {
  on_all_layouts([](ProcessGroup& group, const Trial& trial) {
    std::vector<Bytes> given;
    std::vector<Bytes> wanted;
    for (int rank = 0; rank < group.world_size(); ++rank) {
      given.push_back(message(trial.count, group.rank(), rank, trial.seed));
      wanted.push_back(message(trial.count, rank, group.rank(), trial.seed));
    }
    const TestMemory in(group, trial.memory, DType::kInt32, join(given));
    const TestMemory out(group, trial.memory, trial.count * group.world_size(), DType::kInt32);
    group.all_to_all(in.buffer(), out.buffer());
    ASSERT_EQ(out.bytes(), join(wanted)) << "count " << trial.count;
  });
}

TEST_P(MovementWorlds, AllToAllTakesUnevenBlocksInABufferOrAList) {
  on_all_layouts([](ProcessGroup& group, const Trial& trial) {
    std::vector<Bytes> given;
    std::vector<Bytes> wanted;
    std::vector<std::int64_t> in_counts;
    std::vector<std::int64_t> out_counts;
    const auto count_of = [&](int from, int to) {
      return (from + 2 * to + static_cast<std::int64_t>(trial.seed)) % 3 * trial.count + from;
    };
    for (int rank = 0; rank < group.world_size(); ++rank) {
      in_counts.push_back(count_of(group.rank(), rank));
      out_counts.push_back(count_of(rank, group.rank()));
      given.push_back(message(in_counts.back(), group.rank(), rank, trial.seed));
      wanted.push_back(message(out_counts.back(), rank, group.rank(), trial.seed));
    }
    const TestMemory in(group, trial.memory, DType::kInt32, join(given));
    const TestMemory out(group, trial.memory, sum(out_counts), DType::kInt32);
    group.all_to_all(in.buffer(), out.buffer(), {.in_counts = in_counts, .out_counts = out_counts});
    ASSERT_EQ(out.bytes(), join(wanted));
    const TestMemory again(group, trial.memory, sum(out_counts), DType::kInt32);
    group.all_to_all(cut(in.buffer(), in_counts), cut(again.buffer(), out_counts));
    ASSERT_EQ(again.bytes(), join(wanted));
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, MovementWorlds, ::testing::Values(1, 2, 3, 4, 5, 8));

TEST(DataMovement, AsTheTutorialsPrintIt) {
  run_ranks(one_node(4), [](ProcessGroup& group) {
    std::int64_t mine = group.rank();
    std::vector<std::int64_t> all(4, -1);
    group.all_gather(as_buffer(std::span(&mine, 1)), as_buffer(std::span(all)));
    EXPECT_EQ(all, (std::vector<std::int64_t>{0, 1, 2, 3}));

    std::int64_t square = mine * mine;
    std::vector<std::int64_t> squares(4, -1);
    const bool is_root = group.rank() == 3;
    group.gather(as_buffer(std::span(&square, 1)),
                 is_root ? as_buffer(std::span(squares)) : Buffer(),
                 {.root = 3});
    EXPECT_EQ(squares,
              is_root ? (std::vector<std::int64_t>{0, 1, 4, 9}) : std::vector<std::int64_t>(4, -1));

    std::vector<std::int64_t> tens{10, 11, 12, 13};
    std::int64_t part = -1;
    group.scatter(group.rank() == 0 ? as_buffer(std::span(tens)) : Buffer(),
                  as_buffer(std::span(&part, 1)));
    EXPECT_EQ(part, 10 + group.rank());
  });
}

TEST(DataMovement, AndReductionsUnderWayAtOnceEndAsTheBlockingOnes) {
  for (const std::vector<std::string>& nodes :
       {std::vector<std::string>{"a", "a", "a"}, {"a", "b", "a"}}) {
    run_ranks({.nodes = nodes}, [](ProcessGroup& group) {
      const int rank = group.rank();
      const bool is_root = rank == 1;
      const auto root_only = [&](std::vector<int>& values) {
        return is_root ? as_buffer(std::span(values)) : Buffer();
      };
      std::vector<int> mine{rank, 10 + rank, 20 + rank};
      std::vector<int> all(9, -1);
      std::vector<int> gathered(9, -1);
      std::vector<int> exchanged(3, -1);
      std::vector<int> summed(3, -1);
      std::vector<int> tens{10, 11, 12};
      int part = -1;
      int share = -1;
      const Buffer in = as_buffer(std::span(mine));
      const std::vector<Work> works{
          group.all_gather_async(in, as_buffer(std::span(all))),
          group.gather_async(in, root_only(gathered), {.root = 1}),
          group.scatter_async(root_only(tens), as_buffer(std::span(&part, 1)), {.root = 1}),
          group.all_to_all_async(in, as_buffer(std::span(exchanged))),
          group.reduce_async(in, root_only(summed), {.root = 1}),
          group.reduce_scatter_async(in, as_buffer(std::span(&share, 1)))};
      for (const Work& work : works) {
        work.wait();
      }
      const std::vector<int> whole{0, 10, 20, 1, 11, 21, 2, 12, 22};
      EXPECT_EQ(all, whole);
      EXPECT_EQ(gathered, is_root ? whole : std::vector<int>(9, -1));
      EXPECT_EQ(part, 10 + rank);
      EXPECT_EQ(exchanged, (std::vector<int>{10 * rank, 10 * rank + 1, 10 * rank + 2}));
      EXPECT_EQ(summed, is_root ? (std::vector<int>{3, 33, 63}) : std::vector<int>(3, -1));
      EXPECT_EQ(share, 3 + 30 * rank);
    });
  }
}

TEST(DataMovement, ManySmallOnesInARowStayInStep) {
  run_ranks({.nodes = {"a", "a", "b"}}, [](ProcessGroup& group) {
    for (int round = 0; round < 300; ++round) {
      const int root = round % 3;
      int value = 10 * round + group.rank();
      std::vector<int> all(3);
      group.all_gather(as_buffer(std::span(&value, 1)), as_buffer(std::span(all)));
      ASSERT_EQ(all, (std::vector<int>{10 * round, 10 * round + 1, 10 * round + 2}));
      int part = -1;
      group.scatter(group.rank() == root ? as_buffer(std::span(all)) : Buffer(),
                    as_buffer(std::span(&part, 1)),
                    {.root = root});
      ASSERT_EQ(part, value);
      std::vector<int> transposed(3);
      group.all_to_all(as_buffer(std::span(all)), as_buffer(std::span(transposed)));
      ASSERT_EQ(transposed, std::vector<int>(3, value));
    }
  });
}

TEST(DataMovement, AsynchronousCallsEndInOrder) {
  run_ranks({.nodes = {"a", "b", "a"}}, [](ProcessGroup& group) {
    std::vector<Work> works;
    std::vector<std::vector<int>> gathered(20, std::vector<int>(3));
    std::vector<int> values(20);
    for (std::size_t index = 0; index < 20; ++index) {
      values[index] = static_cast<int>(100 * index) + group.rank();
      works.push_back(group.all_gather_async(as_buffer(std::span(&values[index], 1)),
                                             as_buffer(std::span(gathered[index]))));
    }
    for (std::size_t index = 0; index < 20; ++index) {
      works[index].wait();
      EXPECT_EQ(gathered[index].back(), static_cast<int>(100 * index) + 2);
    }
  });
}

}  // namespace
}  // namespace unisono
