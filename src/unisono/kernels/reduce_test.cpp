#include "unisono/kernels/reduce.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/kernels/instruction_sets.h"
#include "unisono/kernels/reduce_tree.h"
#include "unisono/kernels/test_support.h"

namespace unisono::kernels {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "nothing was thrown";
}

bool is_reducible(DType dtype, ReduceKind kind) {
  return refusal([&] { check_reduction(dtype, kind); }) == "nothing was thrown";
}

TEST(CheckReduction, KindsWithoutMeaningAreRefused) {
  EXPECT_FALSE(is_reducible(DType::kInt32, ReduceKind::kAvg));
  EXPECT_FALSE(is_reducible(DType::kBool, ReduceKind::kAvg));
  EXPECT_FALSE(is_reducible(DType::kInt64, ReduceKind::kPremulSum));
  EXPECT_FALSE(is_reducible(DType::kBool, ReduceKind::kPremulSum));
  EXPECT_FALSE(is_reducible(DType::kComplex64, ReduceKind::kMin));
  EXPECT_FALSE(is_reducible(DType::kComplex128, ReduceKind::kMax));
  for (const ReduceKind kind : {ReduceKind::kBand, ReduceKind::kBor, ReduceKind::kBxor}) {
    EXPECT_FALSE(is_reducible(DType::kFloat32, kind));
    EXPECT_FALSE(is_reducible(DType::kBFloat16, kind));
    EXPECT_FALSE(is_reducible(DType::kComplex64, kind));
    EXPECT_TRUE(is_reducible(DType::kInt8, kind));
    EXPECT_TRUE(is_reducible(DType::kUInt64, kind));
    EXPECT_TRUE(is_reducible(DType::kBool, kind));
  }
  EXPECT_TRUE(is_reducible(DType::kBool, ReduceKind::kProduct));
  EXPECT_TRUE(is_reducible(DType::kComplex64, ReduceKind::kPremulSum));
  EXPECT_TRUE(is_reducible(DType::kFloat16, ReduceKind::kPremulSum));
  EXPECT_TRUE(is_reducible(DType::kComplex64, ReduceKind::kAvg));
  EXPECT_TRUE(is_reducible(DType::kBFloat16, ReduceKind::kAvg));
  EXPECT_THAT(refusal([] { check_reduction(DType::kInt32, ReduceKind::kAvg); }),
              HasSubstr("avg has no meaning for elements of i32"));
}

TEST(CheckReduction, BytesFromAPeerThatAreNoEnumeratorAreRefused) {
  EXPECT_FALSE(is_reducible(std::bit_cast<DType>(std::uint8_t{kDTypeCount}), ReduceKind::kSum));
  EXPECT_FALSE(
      is_reducible(DType::kFloat32, std::bit_cast<ReduceKind>(std::uint8_t{kReduceKindCount})));
}

class BadTask : public ::testing::Test {
 protected:
  BadTask() { task_ = {DType::kFloat32, ReduceKind::kAvg, inputs_, steps_, outputs_}; }

  [[nodiscard]] std::string why(std::int64_t count = 1) const {
    return refusal([&] { reduce(task_, count); });
  }

  float a_ = 1;
  float b_ = 2;
  std::vector<ReduceInput> inputs_{{&a_, false}, {&b_, false}};
  std::vector<ReduceStep> steps_{{0, 1}};
  std::vector<void*> outputs_{&a_};
  ReduceTask task_{};
};

TEST_F(BadTask, IsRefusedWithItsReason) {
  EXPECT_EQ(why(), "nothing was thrown");
  EXPECT_THAT(why(-1), HasSubstr("-1 elements"));
  task_.divisor = 0;
  EXPECT_THAT(why(), HasSubstr("0 contributions"));
  task_.outputs = {};
  EXPECT_THAT(why(), HasSubstr("no outputs"));
  task_.inputs = {};
  EXPECT_THAT(why(), HasSubstr("no inputs"));
}

TEST_F(BadTask, StepsMustNameEarlierValues) {
  steps_ = {{0, 2}};
  task_.steps = steps_;
  EXPECT_THAT(why(), HasSubstr("step 0 combines values 0 and 2, but only 2 exist"));
  steps_[0] = {-1, 0};
  EXPECT_THAT(why(), HasSubstr("values -1 and 0"));
  task_.steps = {};
  EXPECT_THAT(why(), HasSubstr("no step"));
  EXPECT_EQ(a_, 1) << "nothing may be written";
}

TEST(CopyStreaming, CopiesAnyBytesAndNoOthers) {
  for (const std::int64_t target : instruction_sets()) {
    restrict_targets(target);
    for (const std::size_t size : {0U, 1U, 63U, 64U, 65U, 257U, 5000U}) {
      for (const std::size_t offset : {0U, 1U, 31U, 63U}) {
        const OffsetBytes from(size, 63 - offset);
        for (std::size_t i = 0; i < size; ++i) {
          from.data()[i] = static_cast<std::byte>(i * 7 + 1);
        }
        const OffsetBytes to(size + 70, offset);
        copy_streaming(to.data(), from.data(), static_cast<std::int64_t>(size));
        ASSERT_EQ(std::memcmp(to.data(), from.data(), size), 0) << size << " at " << offset;
        for (std::size_t i = size; i < to.size(); ++i) {
          ASSERT_EQ(to.data()[i], std::byte{0}) << size << " at " << offset;
        }
      }
    }
  }
  restrict_targets(0);
}

}  // namespace
}  // namespace unisono::kernels
