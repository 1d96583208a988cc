// Which algorithm is taken, what is said of it, and that results do not depend on it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/dtype.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

#include "reference.h"
#include "support/ranks.h"

namespace unisono {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using test::contribution;
using test::run_ranks;

const std::vector<std::string> kFourNodes{"a", "b", "c", "d"};

// What rank 0 logs of the choices in a world of four nodes.
std::string explained_choices(test::World world) {
  world.environment["UNISONO_LOG"] = "debug";
  ::testing::internal::CaptureStderr();
  run_ranks(world, [](ProcessGroup& group) {
    // The first operation is before ranks have found out what links cost.
    for (int call = 0; call < 2; ++call) {
      std::vector<float> values(16, 1.0F);
      group.all_reduce(as_buffer(std::span(values)));
      EXPECT_EQ(values, std::vector<float>(16, 4.0F));
    }
  });
  return ::testing::internal::GetCapturedStderr();
}

TEST(AlgorithmChoice, FollowsWhatTheUserSaysOfTheLinks) {
  // Slow ways, so that steps count; then messages that cost their sender much.
  EXPECT_THAT(
      explained_choices(
          {.nodes = kFourNodes, .environment = {{"UNISONO_LINKS", "latency=1000,message=0.001"}}}),
      AllOf(HasSubstr("estimated one_shot"),
            HasSubstr("links: given, between nodes 1000.0 us, each further message 0.0 us")));
  EXPECT_THAT(explained_choices({.nodes = kFourNodes,
                                 .environment = {{"UNISONO_LINKS", "latency=1,message=1000"}}}),
              AllOf(HasSubstr("estimated tree"), HasSubstr("links: given, between nodes 1.0 us")));
}

TEST(AlgorithmChoice, OfDifferentFiguresTheSlowestCount) {
  EXPECT_THAT(explained_choices({.nodes = kFourNodes,
                                 .environment = {{"UNISONO_LINKS", "latency=10,message=7"}},
                                 .own_environment = {{2, {{"UNISONO_LINKS", "latency=30"}}}}}),
              HasSubstr("links: given, between nodes 30.0 us, each further message 7.0 us"));
}

TEST(AlgorithmChoice, MeasuresLinksThatNotAllRanksWereToldOf) {
  EXPECT_THAT(explained_choices({.nodes = kFourNodes,
                                 .own_environment = {{1, {{"UNISONO_LINKS", "latency=30"}}}}}),
              AllOf(HasSubstr("links: measured, between nodes"), Not(HasSubstr("links: given"))));
}

// UNISONO_PROPERTY_SEED makes another one.
unsigned property_seed() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread runs yet.
  const char* const seed = std::getenv("UNISONO_PROPERTY_SEED");
  return seed == nullptr ? 1 : static_cast<unsigned>(std::strtoul(seed, nullptr, 10));
}

class RandomReductions : public ::testing::TestWithParam<int> {};

TEST_P(RandomReductions, AreTheCanonicalTreesWhateverIsChosen) {
  const int world_size = GetParam();
  const unsigned seed = property_seed() * 100 + static_cast<unsigned>(world_size);
  std::mt19937 layout_random(seed);
  for (int trial = 0; trial < 3; ++trial) {
    const auto n_nodes = 1 + layout_random() % static_cast<unsigned>(world_size);
    std::vector<std::string> nodes;
    for (int rank = 0; rank < world_size; ++rank) {
      nodes.push_back("node" + std::to_string(layout_random() % n_nodes));
    }
    test::Expected expected(world_size);
    run_ranks({.nodes = nodes}, [&](ProcessGroup& group) {
      std::mt19937 random(seed + static_cast<unsigned>(trial));  // The same on every rank.
      const std::vector<ReduceOp> operations{
          kSum, kAvg, kProduct, kMin, kMax, kBand, kBor, kBxor, premul_sum(-1.7)};
      for (unsigned call = 0; call < 25; ++call) {
        const auto dtype = static_cast<DType>(random() % static_cast<unsigned>(kDTypeCount));
        const ReduceOp& op = operations[random() % operations.size()];
        const auto count = static_cast<std::int64_t>(random() % (1U << random() % 17));
        // Of no rank, of all, or of some.
        const auto memory = static_cast<unsigned>(random() % 3);
        const bool is_symmetric =
            memory == 1 || (memory == 2 && (static_cast<unsigned>(group.rank()) + call) % 3 != 0);
        if (!test::is_allowed(dtype, op.kind)) {
          continue;
        }
        auto mine = contribution(dtype, count, group.rank(), call);
        Buffer buffer{.data = mine.data(), .count = count, .dtype = dtype};
        if (is_symmetric) {
          buffer = group.allocate(count, dtype);
          std::copy(mine.begin(), mine.end(), static_cast<std::byte*>(buffer.data));
        }
        group.all_reduce(buffer, {.op = op});
        const auto* const data = static_cast<const std::byte*>(buffer.data);
        ASSERT_EQ(std::vector<std::byte>(data, data + buffer.n_bytes()),
                  expected.all_reduce(dtype, op, count, call))
            << "seed " << seed << ", trial " << trial << ", call " << call << ": "
            << to_string(dtype) << "[" << count << "] " << to_string(op.kind);
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, RandomReductions, ::testing::Range(1, 10));

}  // namespace
}  // namespace unisono
