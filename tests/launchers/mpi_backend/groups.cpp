// Groups of backend mpi, and calls that the backend rejects.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

#include "rank.h"

namespace unisono {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::int64_t sum_of_ones(ProcessGroup& group) {
  std::int64_t value = 1;
  group.all_reduce(as_buffer(std::span(&value, 1)));
  return value;
}

std::vector<int> ranks_below(int n) {
  std::vector<int> ranks;
  for (int rank = 0; rank < n; ++rank) {
    ranks.push_back(rank);
  }
  return ranks;
}

TEST(MpiGroups, RankAndSizeAreTheMpis) {
  ProcessGroup& group = *world();
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(group.world_size()));
  std::int64_t mine = group.rank();
  group.all_gather(as_buffer(std::span(&mine, 1)), as_buffer(std::span(ranks)));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    EXPECT_EQ(ranks[rank], static_cast<std::int64_t>(rank));
  }
}

TEST(MpiGroups, APartOfTheRanksHasRanksOfItsOwn) {
  ProcessGroup& group = *world();
  const int last = group.world_size() - 1;
  const std::vector<int> members{last, 0};
  const auto pair = group.new_group(members);
  if (pair != nullptr) {
    double value = group.rank() + 1;
    pair->broadcast(as_buffer(std::span(&value, 1)), {.root = 1});
    EXPECT_EQ(value, pair->roster().members[1].job_rank + 1);
    EXPECT_EQ(sum_of_ones(*pair), 2);
  }
  EXPECT_EQ(sum_of_ones(group), group.world_size());
}

// More groups than the MPI supports at the same time.
TEST(MpiGroups, TheyMayComeAndGo) {
  ProcessGroup& group = *world();
  for (int n = 0; n < 300; ++n) {
    EXPECT_EQ(sum_of_ones(*group.new_group(ranks_below(group.world_size()))), group.world_size());
  }
}

TEST(MpiGroups, ThreadsUseGroupsOfTheSameRanksAtOnce) {
  ProcessGroup& group = *world();
  std::vector<std::shared_ptr<ProcessGroup>> groups;
  for (int n = 0; n < 3; ++n) {
    groups.push_back(group.new_group(ranks_below(group.world_size())));
  }
  std::vector<std::jthread> threads;
  for (const auto& one : groups) {
    threads.emplace_back([&one] {
      for (int n = 0; n < 100; ++n) {
        EXPECT_EQ(sum_of_ones(*one), one->world_size());
      }
    });
  }
}

TEST(MpiRefusals, SayWhatTheBackendLacksAndLeaveTheGroupAsItIs) {
  ProcessGroup& group = *world();
  std::array<float, 4> floats{};
  const Buffer buffer = as_buffer(std::span<float>(floats));
  Buffer halves = buffer;
  halves.dtype = DType::kBFloat16;
  EXPECT_THAT(error_of([&] { group.all_reduce(halves); }),
              AllOf(HasSubstr("all_reduce: backend mpi does not reduce bf16; convert"),
                    HasSubstr("backend unisono")));
  EXPECT_THAT(error_of([&] { group.all_reduce(buffer, {.op = premul_sum(2)}); }),
              HasSubstr("backend mpi has no reduction premul_sum"));
  EXPECT_THAT(error_of([&] { group.all_reduce(buffer, {.algorithm = Algorithm::kRing}); }),
              HasSubstr("leave out algorithm ring"));
  EXPECT_THAT(error_of([&] {
                Buffer huge = buffer;
                huge.count = std::int64_t{1} << 31;
                group.all_reduce(huge);
              }),
              HasSubstr("2147483647 elements at most"));
  group.broadcast(halves);  // Data movement does not need sums.
  EXPECT_EQ(sum_of_ones(group), group.world_size());
}

}  // namespace
}  // namespace unisono
