#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/base/reduction.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"

#include "blocks.h"
#include "reference.h"
#include "support/ranks.h"
#include "tested_backend.h"

namespace unisono {
namespace {

using test::bytes_of;
using test::contribution;
using test::expected_all_reduce;
using test::Memory;
using test::one_node;
using test::run_ranks;
using test::TestMemory;

// Runs one all_reduce on this rank and compares the result bit for bit.
void check_all_reduce(ProcessGroup& group,
                      DType dtype,
                      std::int64_t count,
                      const AllReduceOptions& options,
                      Memory memory,
                      unsigned seed,
                      test::Expected& expected) {
  const TestMemory values(group, memory, dtype, contribution(dtype, count, group.rank(), seed));
  group.all_reduce(values.buffer(), options);
  ASSERT_EQ(values.bytes(), expected.all_reduce(dtype, options.op, count, seed))
      << "rank " << group.rank() << " of " << group.world_size() << ": " << to_string(dtype) << "["
      << count << "] " << to_string(options.op.kind)
      << (memory == Memory::kSymmetric ? ", symmetric" : ", private");
}

// Sizes around the limits of a slot, a pipeline segment and a staging buffer.
const std::vector<std::int64_t> kCounts{
    0, 1, 6, 7, 1000, 4096, 4097, 65535, 65537, 200001, 1048577};

// Many ranks on few cores under a sanitizer need a long time.
constexpr std::int64_t kLargestForManyRanks = 70000;

// "xor" of bytes, as a user may implement a reduction.
const ReduceOp kUserXor =
    user_reduction({.combine =
                        [](const void* lhs, const void* rhs, void* result, std::int64_t count) {
                          const auto* const a = static_cast<const std::uint8_t*>(lhs);
                          const auto* const b = static_cast<const std::uint8_t*>(rhs);
                          auto* const out = static_cast<std::uint8_t*>(result);
                          for (std::int64_t index = 0; index < count; ++index) {
                            out[index] = a[index] ^ b[index];
                          }
                        },
                    .name = "xor of bytes"});

const std::vector<ReduceOp> kOperations{
    kSum, kAvg, kProduct, kMin, kMax, kBand, kBor, kBxor, premul_sum(0.3)};

class AllReduceWorlds : public ::testing::TestWithParam<int> {};

TEST_P(AllReduceWorlds, SumsAreTheCanonicalTreesOnAnyLayoutAndMemory) {
  test::Expected expected(GetParam());
  for (const test::World& world : test::worlds_of(GetParam())) {
    run_ranks(world, [&](ProcessGroup& group) {
      unsigned seed = 1;
      for (const std::int64_t count : kCounts) {
        if (count > kLargestForManyRanks && group.world_size() > 4) {
          continue;
        }
        check_all_reduce(group, DType::kFloat32, count, {}, Memory::kPrivate, ++seed, expected);
        check_all_reduce(group, DType::kFloat32, count, {}, Memory::kSymmetric, ++seed, expected);
      }
    });
  }
}

TEST_P(AllReduceWorlds, EveryDTypeAndReductionGivesTheReferencesBits) {
  test::Expected expected(GetParam());
  for (const test::World& world : test::worlds_of(GetParam())) {
    run_ranks(world, [&](ProcessGroup& group) {
      unsigned seed = 100;
      for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
        const auto type = static_cast<DType>(dtype);
        for (const ReduceOp& op : kOperations) {
          if (!test::is_allowed(type, op.kind)) {
            continue;
          }
          check_all_reduce(group, type, 37, {.op = op}, Memory::kPrivate, ++seed, expected);
          check_all_reduce(group, type, 20001, {.op = op}, Memory::kSymmetric, ++seed, expected);
        }
      }
    });
  }
}

TEST_P(AllReduceWorlds, BothAlgorithmsGiveTheSameBits) {
  if (!test::capabilities().takes_algorithm) {
    GTEST_SKIP() << "backend " << test::tested_backend() << " has no choice of algorithms";
  }
  test::Expected expected(GetParam());
  for (const test::World& world : test::worlds_of(GetParam())) {
    run_ranks(world, [&](ProcessGroup& group) {
      for (const Algorithm algorithm : {Algorithm::kOneShot, Algorithm::kTwoShot}) {
        for (const std::int64_t count : {0, 1, 100, 4096}) {
          check_all_reduce(group,
                           DType::kFloat32,
                           count,
                           {.algorithm = algorithm},
                           Memory::kPrivate,
                           7,
                           expected);
        }
      }
    });
  }
}

TEST_P(AllReduceWorlds, AUsersOwnFunctionIsAppliedToEveryRanksElements) {
  if (!test::capabilities().reductions.has(ReduceKind::kUser)) {
    GTEST_SKIP() << "backend " << test::tested_backend() << " has no reductions of users";
  }
  for (const test::World& world : test::worlds_of(GetParam())) {
    run_ranks(world, [&](ProcessGroup& group) {
      for (const std::int64_t count : {0, 1, 100, 4097, 70000}) {
        auto mine = contribution(DType::kUInt8, count, group.rank(), 5);
        const Buffer buffer{.data = mine.data(), .count = count, .dtype = DType::kUInt8};
        group.all_reduce(buffer, {.op = kUserXor});
        ASSERT_EQ(mine, expected_all_reduce(DType::kUInt8, kBxor, count, group.world_size(), 5));
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, AllReduceWorlds, ::testing::Values(1, 2, 3, 4, 5, 8));

TEST(AllReduce, SumsOnesToTheWorldSize) {
  run_ranks(one_node(4), [](ProcessGroup& group) {
    std::vector<float> ones(10, 1.0F);
    group.all_reduce(as_buffer(std::span(ones)));
    EXPECT_EQ(ones, std::vector<float>(10, 4.0F));
  });
}

TEST(AllReduce, OutOfPlaceLeavesTheInputAlone) {
  run_ranks(one_node(3), [](ProcessGroup& group) {
    for (const std::size_t count : {5U, 100000U}) {
      std::vector<std::int64_t> in(count, group.rank() + 1);
      std::vector<std::int64_t> out(count, -1);
      group.all_reduce(as_buffer(std::span(in)), as_buffer(std::span(out)));
      EXPECT_EQ(in, std::vector<std::int64_t>(count, group.rank() + 1));
      EXPECT_EQ(out, std::vector<std::int64_t>(count, 6));
    }
  });
}

TEST(AllReduce, PartsOfSymmetricMemoryAtDifferentOffsetsAreReducedInPlace) {
  run_ranks({.nodes = {"a", "a", "b"}}, [](ProcessGroup& group) {
    const std::int64_t count = 70000;
    const Buffer whole = group.allocate(count + 100, DType::kFloat32);
    Buffer part = whole;
    part.data = static_cast<float*>(whole.data) + 7 * group.rank();
    part.count = count;
    const auto mine = contribution(DType::kFloat32, count, group.rank(), 3);
    std::memcpy(part.data, mine.data(), mine.size());
    group.all_reduce(part);
    EXPECT_EQ(bytes_of(part), expected_all_reduce(DType::kFloat32, kSum, count, 3, 3));
  });
}

// Ranks access peers' buffers directly only if all buffers are symmetric. A rank overwrites its
// input after the operation, so other ranks must have read that input by then.
TEST(AllReduce, SomeRanksMayUseSymmetricMemoryAndOthersTheirOwn) {
  constexpr int kWorldSize = 3;
  test::Expected expected(kWorldSize);
  run_ranks(one_node(kWorldSize), [&](ProcessGroup& group) {
    const Buffer symmetric = group.allocate(10000, DType::kFloat32);
    for (unsigned round = 0; round < 200; ++round) {
      const std::int64_t count = 100 + 37 * (round % 100);
      const unsigned symmetric_ranks = round % (1U << kWorldSize);
      auto mine = contribution(DType::kFloat32, count, group.rank(), round % 10);
      Buffer buffer{.data = mine.data(), .count = count};
      if ((symmetric_ranks >> static_cast<unsigned>(group.rank()) & 1U) != 0) {
        std::memcpy(symmetric.data, mine.data(), mine.size());
        buffer.data = symmetric.data;
      }
      group.all_reduce(buffer);
      ASSERT_EQ(bytes_of(buffer), expected.all_reduce(DType::kFloat32, kSum, count, round % 10))
          << count << " elements, symmetric on ranks " << symmetric_ranks;
    }
  });
}

TEST(AllReduce, AsynchronousCallsEndInOrderWithTheirResults) {
  for (const test::World& world : {one_node(2), test::World{.nodes = {"a", "b", "a"}}}) {
    run_ranks(world, [](ProcessGroup& group) {
      std::vector<std::vector<std::byte>> buffers;
      std::vector<Work> works;
      for (unsigned index = 0; index < 40; ++index) {
        buffers.push_back(contribution(DType::kFloat64, 1000 * index, group.rank(), index));
      }
      for (std::vector<std::byte>& bytes : buffers) {
        works.push_back(
            group.all_reduce_async({.data = bytes.data(),
                                    .count = static_cast<std::int64_t>(bytes.size() / 8),
                                    .dtype = DType::kFloat64}));
      }
      group.barrier();
      for (unsigned index = 0; index < 40; ++index) {
        EXPECT_TRUE(works[index].is_completed()) << "a later blocking call has ended";
        works[index].wait();
        EXPECT_EQ(works[index].sequence_number(), index + 1);
        EXPECT_EQ(
            buffers[index],
            expected_all_reduce(DType::kFloat64, kSum, 1000 * index, group.world_size(), index));
      }
    });
  }
}

TEST(AllReduce, ManySmallOnesInARowStayInStep) {
  run_ranks(one_node(3), [](ProcessGroup& group) {
    for (std::int64_t round = 0; round < 3000; ++round) {
      std::int64_t value = round * (group.rank() + 1);
      group.all_reduce(as_buffer(std::span(&value, 1)));
      ASSERT_EQ(value, round * 6);
    }
  });
}

TEST(AllReduce, WrongArgumentsAreRefusedBeforeAnythingIsSent) {
  run_ranks(one_node(2), [](ProcessGroup& group) {
    std::vector<float> values(10, 1.0F);
    std::vector<float> other(9);
    const Buffer good = as_buffer(std::span(values));
    const auto refuses = [&](const Buffer& in, const Buffer& out, const AllReduceOptions& options) {
      try {
        group.all_reduce(in, out, options);
        ADD_FAILURE() << "accepted";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
      }
    };
    refuses(good, as_buffer(std::span(other)), {});
    refuses(good, {.data = values.data() + 1, .count = 10}, {});
    refuses({.data = nullptr, .count = 1}, {.data = nullptr, .count = 1}, {});
    refuses({.data = values.data(), .count = -1}, {.data = values.data(), .count = -1}, {});
    refuses(good, good, {.timeout = std::chrono::milliseconds(0)});
    Buffer cuda = good;
    cuda.device = {.type = DeviceType::kCuda, .index = 0};
    refuses(cuda, cuda, {});
    std::vector<std::int32_t> integers(4);
    const Buffer ints = as_buffer(std::span(integers));
    refuses(ints, ints, {.op = kAvg});
    refuses(ints, ints, {.op = ReduceOp(ReduceKind::kUser)});
    refuses(good, good, {.op = kBxor});
    std::vector<float> large(100000);
    const Buffer big = as_buffer(std::span(large));
    refuses(big, big, {.algorithm = Algorithm::kOneShot});
    // The group still works after the rejected call.
    group.all_reduce(good);
    EXPECT_EQ(values.front(), 2.0F);
  });
}

TEST(AllReduce, WhatAUsersFunctionThrowsNamesTheRankTheOperationAndTheFunction) {
  if (!test::capabilities().reductions.has(ReduceKind::kUser)) {
    GTEST_SKIP() << "backend " << test::tested_backend() << " has no reductions of users";
  }
  const ReduceOp broken =
      user_reduction({.combine = [](const void*, const void*, void*, std::int64_t) -> void {
                        throw std::runtime_error("no luck today");
                      },
                      .name = "largest norm"});
  for (const test::World& world : {one_node(2), test::World{.nodes = {"a", "b"}}}) {
    const auto errors = test::errors_of_ranks(world, [&](ProcessGroup& group) {
      std::vector<float> values(3);
      group.all_reduce(as_buffer(std::span(values)), {.op = broken});
      group.barrier();
    });
    EXPECT_THAT(errors,
                ::testing::Contains(::testing::ContainsRegex(
                    "^\\[rank [01]/2\\] all_reduce #1 \\(f32\\[3\\], user [0-9a-f]+\\): "
                    "the function of reduction \"largest norm\" threw: no luck today")));
  }
}

}  // namespace
}  // namespace unisono
