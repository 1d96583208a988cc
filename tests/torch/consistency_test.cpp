#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/tensor/hash.h"

#include "rank_threads.h"

namespace unisono::testing {
namespace {

using ::testing::MatchesRegex;

// Returns the error message of check_consistent() on each rank.
std::vector<std::string> differences(
    int world_size,
    ErrorCode expected,
    const std::function<std::vector<NamedTensor>(int rank)>& tensors) {
  std::vector<std::string> messages(static_cast<std::size_t>(world_size));
  run_ranks(world_size, [&](const std::shared_ptr<ProcessGroup>& group) {
    try {
      check_consistent(*group, tensors(group->rank()));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), expected);
      messages[static_cast<std::size_t>(group->rank())] = error.what();
    }
  });
  return messages;
}

TEST(CheckConsistent, EqualBitsAreNoError) {
  EXPECT_THAT(differences(3,
                          ErrorCode::kMismatch,
                          [](int) {
                            return std::vector<NamedTensor>{
                                {.name = "a", .tensor = torch::arange(5)},
                                {.name = "b", .tensor = torch::eye(3).t()}};
                          }),
              ::testing::Each(""));
}

TEST(CheckConsistent, EveryRankNamesTheFirstTensorThatDiffers) {
  const auto messages = differences(3, ErrorCode::kMismatch, [](int rank) {
    std::vector<NamedTensor> tensors;
    for (const char* const name : {"a", "b", "c"}) {
      tensors.push_back({.name = name, .tensor = torch::zeros({2, 3})});
    }
    if (rank == 2) {
      tensors[1].tensor[1][2] = -0.0;
      tensors[2].tensor[0][0] = 1;
    }
    return tensors;
  });
  EXPECT_THAT(messages,
              ::testing::Each(MatchesRegex(
                  "check_consistent: the ranks differ: tensor 'b' is f32.2, 3. with hash "
                  "[0-9a-f]+ on rank 0 and f32.2, 3. with hash [0-9a-f]+ on rank 2")));
}

TEST(CheckConsistent, SparseTensorsAreRefused) {
  const auto messages = differences(1, ErrorCode::kInvalidArgument, [](int) {
    return std::vector<NamedTensor>{{.name = "s", .tensor = torch::eye(3).to_sparse()}};
  });
  EXPECT_THAT(messages,
              ::testing::ElementsAre("check_consistent: tensor 's' is sparse; only dense tensors "
                                     "with elements can be compared"));
}

}  // namespace
}  // namespace unisono::testing
