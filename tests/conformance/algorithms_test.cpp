#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/base/reduction.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/transport/rank_table.h"

#include "reference.h"
#include "support/ranks.h"

namespace unisono {
namespace {

using test::contribution;
using test::run_ranks;

constexpr std::array kInSteps{Algorithm::kTree,
                              Algorithm::kHalvingDoubling,
                              Algorithm::kRing,
                              Algorithm::kChunkedRing,
                              Algorithm::kParameterServer};

// Sizes within and beyond a staging buffer (4 MiB), with odd remainders.
const std::vector<std::int64_t> kCounts{0, 1, 7, 1000, 70001};
constexpr std::int64_t kBeyondStaging = 1100001;

std::vector<std::string> own_nodes(int world_size) {
  std::vector<std::string> nodes;
  for (int rank = 0; rank < world_size; ++rank) {
    nodes.push_back("node" + std::to_string(rank));
  }
  return nodes;
}

class AlgorithmWorlds : public ::testing::TestWithParam<int> {};

TEST_P(AlgorithmWorlds, SumsOfIntegersAreExactWithAllOfThem) {
  for (const std::vector<std::string>& nodes : test::layouts_of(GetParam())) {
    test::Expected expected(GetParam());
    run_ranks({.nodes = nodes}, [&](ProcessGroup& group) {
      for (const Algorithm algorithm : kInSteps) {
        for (const std::int64_t count : kCounts) {
          auto mine = contribution(DType::kInt32, count, group.rank(), 5);
          group.all_reduce({.data = mine.data(), .count = count, .dtype = DType::kInt32},
                           {.algorithm = algorithm});
          ASSERT_EQ(mine, expected.all_reduce(DType::kInt32, kSum, count, 5))
              << to_string(algorithm) << " of " << count << " on rank " << group.rank();
        }
      }
    });
  }
}

TEST_P(AlgorithmWorlds, ThoseThatMayBeChosenGiveTheCanonicalTreesBits) {
  for (const std::vector<std::string>& nodes : test::layouts_of(GetParam())) {
    test::Expected expected(GetParam());
    run_ranks({.nodes = nodes}, [&](ProcessGroup& group) {
      for (const Algorithm algorithm : {Algorithm::kTree, Algorithm::kHalvingDoubling}) {
        for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
          for (const ReduceOp& op : {kSum, kAvg, premul_sum(0.3)}) {
            auto mine = contribution(dtype, 4097, group.rank(), 6);
            group.all_reduce({.data = mine.data(), .count = 4097, .dtype = dtype},
                             {.op = op, .algorithm = algorithm});
            ASSERT_EQ(mine, expected.all_reduce(dtype, op, 4097, 6))
                << to_string(algorithm) << " of " << to_string(dtype);
          }
        }
      }
    });
  }
}

// The order of these algorithms differs from the tree's, but not between ranks. Only the ring of
// whole buffers has a different order on each rank.
TEST_P(AlgorithmWorlds, TheOthersGiveAllRanksTheSameBits) {
  for (const Algorithm algorithm : {Algorithm::kChunkedRing, Algorithm::kParameterServer}) {
    std::mutex mutex;
    std::vector<std::vector<std::byte>> results;
    run_ranks({.nodes = own_nodes(GetParam())}, [&](ProcessGroup& group) {
      auto mine = contribution(DType::kFloat32, 1001, group.rank(), 9);
      group.all_reduce({.data = mine.data(), .count = 1001, .dtype = DType::kFloat32},
                       {.algorithm = algorithm});
      const std::lock_guard lock(mutex);
      results.push_back(mine);
    });
    EXPECT_THAT(results, ::testing::Each(results.front()));
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, AlgorithmWorlds, ::testing::Values(1, 2, 3, 4, 5, 7));

TEST(Algorithms, BuffersLargerThanAStagingBufferGoPartByPart) {
  for (const std::vector<std::string>& nodes :
       {std::vector<std::string>{"a", "a", "a"}, std::vector<std::string>{"a", "b", "a"}}) {
    test::Expected expected(3);
    run_ranks({.nodes = nodes}, [&](ProcessGroup& group) {
      for (const Algorithm algorithm : kInSteps) {
        auto mine = contribution(DType::kInt32, kBeyondStaging, group.rank(), 5);
        group.all_reduce({.data = mine.data(), .count = kBeyondStaging, .dtype = DType::kInt32},
                         {.algorithm = algorithm});
        ASSERT_EQ(mine, expected.all_reduce(DType::kInt32, kSum, kBeyondStaging, 5))
            << to_string(algorithm);
      }
    });
  }
}

TEST(Algorithms, OutOfPlaceLeavesTheInputAlone) {
  run_ranks({.nodes = {"a", "b", "b"}}, [](ProcessGroup& group) {
    for (const Algorithm algorithm : kInSteps) {
      std::vector<std::int64_t> in(100, group.rank() + 1);
      std::vector<std::int64_t> out(100, -1);
      group.all_reduce(
          as_buffer(std::span(in)), as_buffer(std::span(out)), {.algorithm = algorithm});
      EXPECT_EQ(in, std::vector<std::int64_t>(100, group.rank() + 1));
      EXPECT_EQ(out, std::vector<std::int64_t>(100, 6));
    }
  });
}

// Returns the number of elements that each rank has sent to each other rank during one run of
// `algorithm`.
std::vector<std::vector<std::int64_t>> sent_elements(int world_size,
                                                     Algorithm algorithm,
                                                     std::int64_t count) {
  std::vector<std::vector<std::int64_t>> sent(static_cast<std::size_t>(world_size));
  std::mutex mutex;
  run_ranks({.nodes = own_nodes(world_size)}, [&](ProcessGroup& group) {
    std::vector<float> values(static_cast<std::size_t>(count), 1.0F);
    group.all_reduce(as_buffer(std::span(values)), {.algorithm = algorithm});
    EXPECT_EQ(values, std::vector<float>(values.size(), static_cast<float>(world_size)));
    const std::lock_guard lock(mutex);
    for (const RankTraffic& traffic : group.traffic()) {
      sent[static_cast<std::size_t>(group.rank())].push_back(traffic.sent_bytes / 4);
    }
  });
  return sent;
}

std::int64_t sum_of(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

TEST(Algorithms, ARingSendsWholeBuffersToTheNextRankAlone) {
  const auto sent = sent_elements(4, Algorithm::kRing, 1000);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    std::vector<std::int64_t> expected(4, 0);
    expected[(rank + 1) % 4] = 3 * 1000;
    EXPECT_EQ(sent[rank], expected) << rank;
  }
}

TEST(Algorithms, AChunkedRingSendsTwiceTheBufferAtMostAndToTheNextRankAlone) {
  // 1001 elements are cut into chunks of 256 elements and a remainder: whole cache lines.
  const auto sent = sent_elements(4, Algorithm::kChunkedRing, 1001);
  std::int64_t total = 0;
  for (std::size_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(sum_of(sent[rank]), sent[rank][(rank + 1) % 4]) << rank;
    EXPECT_LE(sum_of(sent[rank]), 2 * 3 * 256);
    total += sum_of(sent[rank]);
  }
  EXPECT_EQ(total, 2 * 3 * 1001);
}

TEST(Algorithms, AParameterServerTakesAllBuffersAndSendsAllResults) {
  const auto sent = sent_elements(5, Algorithm::kParameterServer, 1000);
  EXPECT_EQ(sent[0], (std::vector<std::int64_t>{0, 1000, 1000, 1000, 1000}));
  for (std::size_t rank = 1; rank < 5; ++rank) {
    EXPECT_EQ(sent[rank], (std::vector<std::int64_t>{1000, 0, 0, 0, 0})) << rank;
  }
}

// The traffic of the busiest rank in both directions.
TEST(Algorithms, ARingsBusiestRankMovesAtMostHalfOfAServersAtEightRanks) {
  const auto busiest = [](Algorithm algorithm) {
    const auto sent = sent_elements(8, algorithm, 4096);
    std::int64_t most = 0;
    for (std::size_t rank = 0; rank < 8; ++rank) {
      std::int64_t bytes = sum_of(sent[rank]);
      for (const std::vector<std::int64_t>& from : sent) {
        bytes += from[rank];
      }
      most = std::max(most, bytes);
    }
    return most;
  };
  EXPECT_EQ(busiest(Algorithm::kParameterServer), 2 * 7 * 4096);
  EXPECT_LE(2 * busiest(Algorithm::kChunkedRing), busiest(Algorithm::kParameterServer));
}

TEST(Algorithms, OfAllReduceAreRefusedElsewhere) {
  run_ranks(test::one_node(2), [](ProcessGroup& group) {
    std::vector<float> values(10, 1.0F);
    const Buffer buffer = as_buffer(std::span(values));
    for (const Algorithm algorithm : kInSteps) {
      EXPECT_THAT([&] { group.reduce(buffer, buffer, {.algorithm = algorithm}); },
                  ::testing::ThrowsMessage<Error>(::testing::HasSubstr(
                      std::string("algorithm ") + to_string(algorithm) + " is for all_reduce")));
    }
  });
}

}  // namespace
}  // namespace unisono
