// Selection of the algorithm, and its log message.
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/reduction.h"
#include "unisono/comm/process_group.h"

#include "support/ranks.h"

namespace unisono {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

using test::errors_of_ranks;
using test::one_node;
using test::run_ranks;

const std::vector<std::string> kFourNodes{"a", "b", "c", "d"};

// Returns rank 0's log of the selection in a world of four nodes.
std::string explained_choices(test::World world) {
  world.environment["UNISONO_LOG"] = "debug";
  ::testing::internal::CaptureStderr();
  run_ranks(world, [](ProcessGroup& group) {
    // Ranks have not measured the cost of links before the first operation.
    for (int call = 0; call < 2; ++call) {
      std::vector<float> values(16, 1.0F);
      group.all_reduce(as_buffer(std::span(values)));
      EXPECT_EQ(values, std::vector<float>(16, 4.0F));
    }
  });
  return ::testing::internal::GetCapturedStderr();
}

TEST(AlgorithmChoice, FollowsWhatTheUserSaysOfTheLinks) {
  // First a high latency, so that the number of steps counts; then a high cost of each message for
  // its sender.
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

TEST(AlgorithmChoice, AOneShotReduceScatterIsForOneNode) {
  const auto scatter = [](ProcessGroup& group) {
    std::vector<float> in(2, 1.0F);
    float out = 0;
    group.reduce_scatter(as_buffer(std::span(in)),
                         as_buffer(std::span(&out, 1)),
                         {.algorithm = Algorithm::kOneShot});
  };
  EXPECT_THAT(errors_of_ranks(one_node(2), scatter), Each(""));
  EXPECT_THAT(errors_of_ranks({.nodes = {"a", "b"}}, scatter),
              Each(HasSubstr("algorithm one_shot is for reduce_scatter on one node, and the group "
                             "has 2; use auto or two_shot")));
}

}  // namespace
}  // namespace unisono
