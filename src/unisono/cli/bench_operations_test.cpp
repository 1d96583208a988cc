#include "unisono/cli/bench_operations.h"

#include <atomic>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/cli/bench_job.h"

#include "support/ranks.h"

namespace unisono::cli::bench {
namespace {

using ::testing::HasSubstr;

const BenchOperation& row(const char* name) {
  return find_operations(name, Algorithm::kAuto).front();
}

// Returns the number of errors that check() finds in a world of ranks, which is equal on all ranks.
std::int64_t check_on(const test::World& world, const BenchOperation& operation, DType dtype) {
  std::vector<std::int64_t> n_wrong(world.nodes.size());
  test::run_ranks(world, [&](ProcessGroup& group) {
    const RankPlace place{.rank = group.rank(), .world_size = group.world_size()};
    const Counts counts =
        operation.counts(place, count_elements(operation, 4000, dtype, place.world_size));
    const Buffer out = group.allocate(counts.out, dtype);
    const Buffer in = operation.is_in_place ? out : group.allocate(counts.in, dtype);
    const BenchCall call{.in = in, .out = out};
    n_wrong[static_cast<std::size_t>(group.rank())] = check(group, operation, call).value();
  });
  EXPECT_THAT(n_wrong, ::testing::Each(n_wrong.front()));
  return n_wrong.front();
}

TEST(BenchOperations, RightResultsAreFoundRight) {
  for (const BenchOperation& operation : operation_table()) {
    for (const test::World& world : {test::one_node(3), test::World{.nodes = {"a", "a", "b"}}}) {
      for (const DType dtype :
           {DType::kFloat32, DType::kBFloat16, DType::kComplex64, DType::kInt8, DType::kBool}) {
        EXPECT_EQ(check_on(world, operation, dtype), 0) << operation.name << to_string(dtype);
      }
    }
  }
}

TEST(BenchOperations, ACallThatDoesNothingIsFoundWrong) {
  for (BenchOperation operation : operation_table()) {
    operation.call = [](ProcessGroup&, const BenchCall&) {};
    EXPECT_GT(check_on(test::one_node(2), operation, DType::kFloat32), 0) << operation.name;
  }
}

// The error is in the first or in the second of the calls of a check.
TEST(BenchOperations, OneWrongElementOfOneRankIsCounted) {
  static std::atomic<int> n_calls_to_wrong_one;
  BenchOperation operation = row("all_reduce");
  operation.call = [](ProcessGroup& group, const BenchCall& call) {
    group.all_reduce(call.out);
    if (group.rank() == 1 && n_calls_to_wrong_one-- == 0) {
      static_cast<float*>(call.out.data)[17] += 1;
    }
  };
  for (const int n_right_calls : {0, 1}) {
    n_calls_to_wrong_one = n_right_calls;
    EXPECT_EQ(check_on(test::one_node(3), operation, DType::kFloat32), 1);
  }
}

TEST(BenchOperations, AnotherRanksDataIsFoundWrong) {
  BenchOperation operation = row("broadcast");
  operation.call = [](ProcessGroup& group, const BenchCall& call) {
    group.broadcast(call.out, {.root = 1});
  };
  EXPECT_GT(check_on(test::one_node(2), operation, DType::kInt32), 3000 / 4);
}

TEST(BenchOperations, SizesAreRoundedUpToWhatEveryRankCanHave) {
  BenchOperation operation = row("all_reduce");
  EXPECT_EQ(count_elements(operation, 1024, DType::kFloat32, 3), 256);
  EXPECT_EQ(count_elements(operation, 1025, DType::kFloat32, 3), 257);
  EXPECT_EQ(count_elements(operation, 0, DType::kFloat32, 3), 0);
  operation.extent = Extent::kChunks;
  EXPECT_EQ(count_elements(operation, 1024, DType::kFloat32, 3), 258);
  EXPECT_EQ(count_elements(operation, 8, DType::kFloat64, 4), 4);
  operation.extent = Extent::kNone;
  EXPECT_EQ(count_elements(operation, 1024, DType::kFloat32, 3), 0);
}

TEST(BenchOperations, BusBandwidthIsThatOfNcclTests) {
  EXPECT_DOUBLE_EQ(row("all_reduce").bus_factor(2), 1.0);
  EXPECT_DOUBLE_EQ(row("all_reduce").bus_factor(4), 1.5);
  for (const char* name : {"broadcast", "reduce", "sendrecv"}) {
    EXPECT_DOUBLE_EQ(row(name).bus_factor(4), 1.0);
  }
  for (const char* name : {"all_gather", "gather", "scatter", "reduce_scatter", "all_to_all"}) {
    EXPECT_DOUBLE_EQ(row(name).bus_factor(4), 0.75);
  }
}

TEST(BenchOperations, BytesAreTheWholeOfChunks) {
  const auto counts_of = [](const char* name, int rank) {
    const Counts counts = row(name).counts({.rank = rank, .world_size = 4}, 100);
    return std::pair(counts.in, counts.out);
  };
  using Pair = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(counts_of("reduce", 0), Pair(100, 100));
  EXPECT_EQ(counts_of("reduce", 1), Pair(100, 0));
  EXPECT_EQ(counts_of("all_gather", 1), Pair(25, 100));
  EXPECT_EQ(counts_of("gather", 0), Pair(25, 100));
  EXPECT_EQ(counts_of("gather", 1), Pair(25, 0));
  EXPECT_EQ(counts_of("scatter", 0), Pair(100, 25));
  EXPECT_EQ(counts_of("scatter", 1), Pair(0, 25));
  EXPECT_EQ(counts_of("reduce_scatter", 1), Pair(100, 25));
  EXPECT_EQ(counts_of("all_to_all", 1), Pair(100, 100));
  EXPECT_EQ(counts_of("sendrecv", 3), Pair(100, 100));
  EXPECT_EQ(counts_of("sendrecv", 1), Pair(0, 0));
}

TEST(BenchOperations, AllIsEveryRow) {
  EXPECT_EQ(find_operations("all", Algorithm::kTwoShot).size(), operation_table().size());
  for (const BenchOperation& operation : operation_table()) {
    EXPECT_EQ(std::string_view(row(operation.name).name), operation.name);
  }
}

TEST(BenchOperations, WhatIsNotInTheTableIsExplained) {
  const auto refusal = [](const std::string& name, Algorithm algorithm) -> std::string {
    try {
      (void)find_operations(name, algorithm);
      return "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
  };
  EXPECT_THAT(refusal("allreduce", Algorithm::kAuto),
              HasSubstr("no operation \"allreduce\"; there are all_reduce, broadcast, "));
  EXPECT_THAT(refusal("barrier", Algorithm::kTwoShot), HasSubstr("has no algorithm two_shot"));
  EXPECT_THAT(refusal("reduce", Algorithm::kTree), HasSubstr("has no algorithm tree"));
  EXPECT_EQ(refusal("reduce", Algorithm::kTwoShot), "accepted");
}

TEST(BenchJob, PretendNodesAreBlocksOfRanks) {
  std::vector<std::string> nodes;
  for (int rank = 0; rank < 5; ++rank) {
    const Environment environment =
        pretend_nodes(test::fake_environment({{"MASTER_ADDR", "127.0.0.1"},
                                              {"RANK", std::to_string(rank)},
                                              {"WORLD_SIZE", "5"},
                                              {"UNISONO_NODE_ID", "machine"}}),
                      2);
    nodes.push_back(environment("UNISONO_NODE_ID").value());
    EXPECT_EQ(environment("WORLD_SIZE"), "5");
  }
  EXPECT_THAT(nodes,
              ::testing::ElementsAre("machine/bench0",
                                     "machine/bench0",
                                     "machine/bench0",
                                     "machine/bench1",
                                     "machine/bench1"));
}

}  // namespace
}  // namespace unisono::cli::bench
