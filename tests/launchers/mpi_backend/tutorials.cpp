// Programs for torch.distributed's backend "mpi" as in tutorials: rank 0 of 0 is passed (main.cpp),
// and mpirun supplies the real values. The expected results are the printed results of these
// programs.

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"

#include "rank.h"

namespace unisono {
namespace {

using ::testing::HasSubstr;

constexpr int kSize = 4;

class MpiTutorials : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(world()->world_size(), kSize);
    ASSERT_GE(world()->rank(), 0);
    ASSERT_LT(world()->rank(), kSize);
  }

  ProcessGroup& group_ = *world();
  int rank_ = world()->rank();
};

std::vector<float> reduced(ProcessGroup& group, ReduceOp op) {
  const auto r = static_cast<float>(group.rank());
  std::vector<float> values{r + 1, r + 2};
  group.all_reduce(as_buffer(std::span(values)), {.op = op});
  return values;
}

TEST_F(MpiTutorials, AMessageComesFromRankZero) {
  for (int receiver = 1; receiver < kSize; ++receiver) {
    float value = rank_ == 0 ? 1.0F : 0.0F;
    if (rank_ == 0) {
      group_.send(as_buffer(std::span(&value, 1)), receiver);
    } else if (rank_ == receiver) {
      EXPECT_EQ(group_.recv(as_buffer(std::span(&value, 1)), 0), 0);
      EXPECT_EQ(value, 1.0F);
    }
  }
}

// All ranks send first and wait in the opposite order.
TEST_F(MpiTutorials, AHundredMessagesAreUnderWayAtOnce) {
  constexpr std::size_t kMessages = 100;
  const int next = (rank_ + 1) % kSize;
  const int previous = (rank_ + kSize - 1) % kSize;
  std::vector<std::int32_t> given(kMessages);
  std::iota(given.begin(), given.end(), 1000 * rank_);
  std::vector<std::int32_t> taken(kMessages);
  std::vector<Work> works;
  for (std::size_t i = 0; i < kMessages; ++i) {
    works.push_back(group_.send_async(as_buffer(std::span(&given[i], 1)), next));
  }
  for (std::size_t i = 0; i < kMessages; ++i) {
    works.push_back(group_.recv_async(as_buffer(std::span(&taken[i], 1)), previous));
  }
  while (!works.empty()) {
    works.back().wait();
    works.pop_back();
  }
  for (std::size_t i = 0; i < kMessages; ++i) {
    EXPECT_EQ(taken[i], 1000 * previous + static_cast<int>(i));
  }
}

TEST_F(MpiTutorials, AGroupOfTwoSumsToTwo) {
  const auto pair = group_.new_group(std::vector{0, 1});
  ASSERT_EQ(pair != nullptr, rank_ < 2);
  if (pair != nullptr) {
    float one = 1;
    pair->all_reduce(as_buffer(std::span(&one, 1)));
    EXPECT_EQ(one, 2.0F);
    EXPECT_EQ(pair->rank(), rank_);
    pair->destroy();
  }
}

TEST_F(MpiTutorials, TheFourReductionsArePrintedSo) {
  EXPECT_EQ(reduced(group_, kSum), (std::vector<float>{10, 14}));
  EXPECT_EQ(reduced(group_, kProduct), (std::vector<float>{24, 120}));
  EXPECT_EQ(reduced(group_, kMax), (std::vector<float>{4, 5}));
  EXPECT_EQ(reduced(group_, kMin), (std::vector<float>{1, 2}));
}

TEST_F(MpiTutorials, AReductionOfOnesOwnIsRefusedWithWhatHasIt) {
  const ReduceOp own = user_reduction(
      {.combine = [](const void*, const void*, void*, auto) {}, .name = "logaddexp"});
  EXPECT_THAT(error_of([&] { (void)reduced(group_, own); }),
              HasSubstr("make the group with backend unisono, which has it"));
}

TEST_F(MpiTutorials, EachRootsTensorComesToAll) {
  for (int root = 0; root < kSize; ++root) {
    std::array<double, 3> values{rank_ + 0.25, -1.0 * rank_, 1e300};
    group_.broadcast(as_buffer(std::span<double>(values)), {.root = root});
    EXPECT_EQ(values, (std::array{root + 0.25, -1.0 * root, 1e300}));
  }
}

TEST_F(MpiTutorials, AReduceLeavesOtherRanksAsTheyAre) {
  float value = static_cast<float>(rank_) + 1;
  const Buffer buffer = as_buffer(std::span(&value, 1));
  group_.reduce(buffer, buffer, {.root = 1});
  EXPECT_EQ(value, rank_ == 1 ? 10.0F : static_cast<float>(rank_) + 1);
}

TEST_F(MpiTutorials, ScatterGatherAndAllGatherArePrintedSo) {
  std::vector<std::int64_t> tens{10, 11, 12, 13};
  std::int64_t part = -1;
  group_.scatter(rank_ == 0 ? as_buffer(std::span(tens)) : Buffer{},
                 as_buffer(std::span(&part, 1)));
  EXPECT_EQ(part, 10 + rank_);
  std::int64_t square = static_cast<std::int64_t>(rank_) * rank_;
  std::vector<std::int64_t> squares(kSize, -1);
  group_.gather(as_buffer(std::span(&square, 1)),
                rank_ == 3 ? as_buffer(std::span(squares)) : Buffer{},
                {.root = 3});
  EXPECT_EQ(
      squares,
      rank_ == 3 ? (std::vector<std::int64_t>{0, 1, 4, 9}) : std::vector<std::int64_t>(kSize, -1));
  std::int64_t mine = rank_;
  std::vector<std::int64_t> all(kSize, -1);
  group_.all_gather(as_buffer(std::span(&mine, 1)), as_buffer(std::span(all)));
  EXPECT_EQ(all, (std::vector<std::int64_t>{0, 1, 2, 3}));
}

// A scatter with a wrong number of blocks, and a list of blocks on a rank that is not the root.
TEST_F(MpiTutorials, WrongListsAreRefused) {
  std::vector<float> values(kSize - 1);
  float part = 0;
  EXPECT_NE(error_of([&] {
              group_.scatter(
                  as_buffer(std::span(values)), as_buffer(std::span(&part, 1)), {.root = rank_});
            }),
            "");
  EXPECT_NE(error_of([&] {
              group_.gather(as_buffer(std::span(&part, 1)),
                            as_buffer(std::span(values)),
                            {.root = (rank_ + 1) % kSize});
            }),
            "");
  group_.barrier();
}

// Each step forwards the value received in the previous step.
TEST_F(MpiTutorials, ARingOfMessagesSumsUp) {
  const int right = (rank_ + 1) % kSize;
  const int left = (rank_ + kSize - 1) % kSize;
  float passed = static_cast<float>(rank_) + 1;
  float sum = passed;
  for (int step = 0; step + 1 < kSize; ++step) {
    float taken = 0;
    const Work sent = group_.send_async(as_buffer(std::span(&passed, 1)), right);
    group_.recv(as_buffer(std::span(&taken, 1)), left);
    sent.wait();
    sum += taken;
    passed = taken;
  }
  EXPECT_EQ(sum, 10.0F);
}

}  // namespace
}  // namespace unisono
