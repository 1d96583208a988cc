#include "unisono/kernels/reduce.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <functional>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/kernels/targets.h"
#include "unisono/kernels/testing/test_support.h"

namespace unisono {

// Defines how a test's parameter is printed.
static void PrintTo(ReduceKind kind, std::ostream* out) {
  *out << to_string(kind);
}

static void PrintTo(DType dtype, std::ostream* out) {
  *out << to_string(dtype);
}

}  // namespace unisono

namespace unisono::kernels {
namespace {

void expect_same_memory(const Trial& expected, const Trial& actual, std::int64_t target) {
  for (std::size_t i = 0; i < expected.buffers.size(); ++i) {
    const OffsetBytes& wanted = expected.buffers[i];
    const OffsetBytes& got = actual.buffers[i];
    const bool is_output = std::ranges::find(expected.outputs, i) != expected.outputs.end();
    const std::size_t n_result =
        is_output ? size_of(expected.output_dtype()) * static_cast<std::size_t>(expected.count) : 0;
    const auto difference =
        first_difference(wanted.data(), got.data(), n_result, expected.output_dtype());
    ASSERT_EQ(difference, std::nullopt)
        << "buffer " << i << ", " << describe(expected) << ", target " << target;
    ASSERT_EQ(
        std::memcmp(wanted.data() + n_result, got.data() + n_result, wanted.size() - n_result), 0)
        << "memory of buffer " << i << " that is no output changed: " << describe(expected)
        << ", target " << target;
  }
}

class ReduceDifferential : public ::testing::TestWithParam<std::tuple<DType, ReduceKind>> {
 protected:
  void TearDown() override { restrict_targets(0); }
};

TEST_P(ReduceDifferential, EveryInstructionSetGivesTheReferencesBits) {
  constexpr int n_trials = 10;
  const auto [dtype, kind] = GetParam();
  Random random(static_cast<unsigned>(dtype) * 16U + static_cast<unsigned>(kind));
  for (const int n_inputs : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 21}) {
    for (int i = 0; i < n_trials; ++i) {
      const Trial trial = make_trial(dtype, kind, n_inputs, random);
      Trial expected = trial;
      expected.run(reduce_reference);
      for (const std::int64_t target : instruction_sets()) {
        restrict_targets(target);
        Trial actual = trial;
        {
          const HostileMode mode;
          actual.run(reduce);
          ASSERT_TRUE(mode.is_intact());
        }
        ASSERT_NO_FATAL_FAILURE(expect_same_memory(expected, actual, target));
      }
    }
  }
}

// A plan with more live values than the scratch memory of the blocks holds.
TEST(ReduceManyInputs, EveryPairOpenAtOnceStillGivesTheReferencesBits) {
  constexpr int n_inputs = 1500;
  constexpr std::size_t n_bytes = 77 * sizeof(std::int32_t);
  Random random(1);
  Trial trial;
  trial.shape.dtype = DType::kInt32;
  trial.shape.kind = ReduceKind::kSum;
  trial.count = 77;
  trial.buffers.reserve(n_inputs + 1);
  for (int i = 0; i < n_inputs; ++i) {
    trial.is_partial.push_back(false);
    trial.buffers.emplace_back(n_bytes, 0);
    fill(trial.buffers.back(), n_bytes, DType::kInt32, random);
  }
  for (int i = 0; i + 1 < n_inputs; ++i) {
    trial.steps.push_back({.lhs = 2 * i, .rhs = 2 * i + 1});
  }
  trial.outputs.push_back(trial.buffers.size());
  trial.buffers.emplace_back(n_bytes, 2);
  Trial expected = trial;
  expected.run(reduce_reference);
  trial.run(reduce);
  expect_same_memory(expected, trial, 0);
}

std::vector<std::tuple<DType, ReduceKind>> meaningful_pairs() {
  std::vector<std::tuple<DType, ReduceKind>> pairs;
  for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
    for (int kind = 0; kind < kReduceKindCount; ++kind) {
      try {
        check_reduction(static_cast<DType>(dtype), static_cast<ReduceKind>(kind));
        pairs.emplace_back(static_cast<DType>(dtype), static_cast<ReduceKind>(kind));
      } catch (const Error&) {
        continue;
      }
    }
  }
  return pairs;
}

INSTANTIATE_TEST_SUITE_P(All,
                         ReduceDifferential,
                         ::testing::ValuesIn(meaningful_pairs()),
                         [](const auto& parameters) {
                           return std::string(to_string(std::get<0>(parameters.param))) + "_" +
                                  to_string(std::get<1>(parameters.param));
                         });

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
              HasSubstr("avg is not defined for elements of i32"));
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

using Reduction = void (*)(const ReduceTask&, std::int64_t);

/// Wraps a function of single elements as a user reduction of many elements.
template <class T, class Function>
UserReduction elementwise(Function function) {
  return {.combine =
              [function](const void* lhs, const void* rhs, void* result, std::int64_t count) {
                for (std::int64_t i = 0; i < count; ++i) {
                  static_cast<T*>(result)[i] =
                      function(static_cast<const T*>(lhs)[i], static_cast<const T*>(rhs)[i]);
                }
              },
          .name = "elementwise"};
}

class ReduceUser : public ::testing::TestWithParam<Reduction> {
 protected:
  // Returns the result; its element i is the combination of the elements i of all inputs.
  template <class T>
  std::vector<T> combine(DType dtype,
                         const UserReduction& user,
                         const std::vector<std::vector<T>>& inputs,
                         std::size_t n_outputs = 1,
                         bool are_partial = false) {
    std::vector<ReduceInput> from;
    for (const std::vector<T>& input : inputs) {
      from.push_back({.data = input.data(), .is_partial = are_partial});
    }
    std::vector<std::vector<T>> results(n_outputs, std::vector<T>(inputs.front().size()));
    std::vector<void*> outputs;
    for (std::vector<T>& result : results) {
      outputs.push_back(result.data());
    }
    const auto steps = canonical_steps(static_cast<int>(inputs.size()));
    GetParam()({.dtype = dtype,
                .kind = ReduceKind::kUser,
                .inputs = from,
                .steps = steps,
                .outputs = outputs,
                .output_is_partial = are_partial,
                .user = &user},
               static_cast<std::int64_t>(inputs.front().size()));
    for (const std::vector<T>& result : results) {
      EXPECT_EQ(result, results.front());
    }
    return results.front();
  }
};

TEST_P(ReduceUser, CombinesInTheTreesOrder) {
  const auto sequence =
      elementwise<std::int64_t>([](std::int64_t lhs, std::int64_t rhs) { return 10 * lhs - rhs; });
  const auto result = combine<std::int64_t>(DType::kInt64, sequence, {{1}, {2}, {3}, {4}, {5}});
  EXPECT_EQ(result.front(), 10 * (10 * (10 * 1 - 2) - (10 * 3 - 4)) - 5);
}

TEST_P(ReduceUser, EachOfManyElementsIsCombinedOnceForAllOutputs) {
  constexpr std::size_t count = 12'345;
  const auto difference = elementwise<std::int16_t>(
      [](std::int16_t lhs, std::int16_t rhs) { return static_cast<std::int16_t>(2 * lhs - rhs); });
  for (const std::size_t n_inputs : {2U, 3U, 7U}) {
    const std::vector<std::int16_t> ones(count, 1);
    std::vector<std::vector<std::int16_t>> inputs(n_inputs, ones);
    for (std::size_t i = 0; i < count; ++i) {
      inputs.front()[i] = static_cast<std::int16_t>(i);
    }
    // A 1 on the right stays 1. An i on the left doubles its distance from 1 in each step.
    const auto depth = static_cast<int>(std::bit_width(n_inputs - 1));
    std::vector<std::int16_t> expected(count);
    for (std::size_t i = 0; i < count; ++i) {
      expected[i] = static_cast<std::int16_t>(((static_cast<int>(i) - 1) << depth) + 1);
    }
    for (const std::size_t n_outputs : {1U, 3U}) {
      EXPECT_EQ(combine(DType::kInt16, difference, inputs, n_outputs), expected)
          << n_inputs << " inputs, " << n_outputs << " outputs";
    }
  }
}

TEST_P(ReduceUser, SixteenBitFloatsStayThemselves) {
  const auto larger = elementwise<std::uint16_t>(
      [](std::uint16_t lhs, std::uint16_t rhs) { return lhs < rhs ? rhs : lhs; });
  for (const bool are_partial : {false, true}) {
    const auto result = combine<std::uint16_t>(
        DType::kBFloat16, larger, {{0x3F80, 0x7FC1}, {0x4000, 1}, {0, 0}}, 1, are_partial);
    EXPECT_EQ(result, (std::vector<std::uint16_t>{0x4000, 0x7FC1}));
  }
}

TEST_P(ReduceUser, OneInputIsCopiedAsItIs) {
  const UserReduction never{.combine = [](const void*, const void*, void*, std::int64_t) {
    ADD_FAILURE() << "there are no two elements";
  }};
  const std::vector<std::uint8_t> bools{0, 1, 7};
  EXPECT_EQ(combine<std::uint8_t>(DType::kBool, never, {bools}, 2), bools);
}

TEST_P(ReduceUser, ComplexNumbersComeWhole) {
  struct alignas(16) Complex {
    double real;
    double imaginary;
    bool operator==(const Complex&) const = default;
  };

  const auto cross = elementwise<Complex>([](Complex lhs, Complex rhs) {
    EXPECT_EQ(std::bit_cast<std::uintptr_t>(&lhs) % 16, 0U);
    return Complex{lhs.real + rhs.imaginary, lhs.imaginary + rhs.real};
  });
  const auto result = combine<Complex>(DType::kComplex128, cross, {{{1, 2}}, {{3, 5}}, {{7, 9}}});
  EXPECT_EQ(result.front(), (Complex{1 + 5 + 9, 2 + 3 + 7}));
}

TEST_P(ReduceUser, PointersAreAlignedToElements) {
  std::vector<double> buffers(3 * 2000 + 1);
  // Not aligned to a cache line, so that the first block is short.
  const std::array<double*, 3> inputs{&buffers[1], &buffers[2001], &buffers[4001]};
  const std::vector<ReduceInput> from{{inputs[0], false}, {inputs[1], false}, {inputs[2], false}};
  std::int64_t n_misaligned = 0;
  const UserReduction user{
      .combine = [&](const void* lhs, const void* rhs, void* result, std::int64_t) {
        for (const void* pointer : {lhs, rhs, static_cast<const void*>(result)}) {
          n_misaligned += std::bit_cast<std::uintptr_t>(pointer) % alignof(double) != 0 ? 1 : 0;
        }
      }};
  const auto steps = canonical_steps(3);
  void* const output = inputs[0];
  GetParam()({.dtype = DType::kFloat64,
              .kind = ReduceKind::kUser,
              .inputs = from,
              .steps = steps,
              .outputs = std::span(&output, 1),
              .user = &user},
             2000);
  EXPECT_EQ(n_misaligned, 0);
}

TEST_P(ReduceUser, TheFunctionRoundsToNearestAndKeepsSubnormals) {
  const auto sum = elementwise<float>([](float lhs, float rhs) {
    volatile float left = lhs;
    return left + rhs;
  });
  const HostileMode mode;
  const auto result = combine<float>(DType::kFloat32, sum, {{0x1p-149F, 1}, {0x1p-149F, 0x1p-30F}});
  EXPECT_TRUE(mode.is_intact());
  EXPECT_EQ(std::bit_cast<std::uint32_t>(result[0]), 2U);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(result[1]), std::bit_cast<std::uint32_t>(1.0F));
}

TEST_P(ReduceUser, ExceptionsAreErrorsThatNameTheReduction) {
  const auto refuse = elementwise<int>([](int lhs, int rhs) -> int {
    if (lhs + rhs == 7) {
      throw std::domain_error("seven");
    }
    return lhs + rhs;
  });
  const HostileMode mode;
  EXPECT_EQ(combine<int>(DType::kInt32, refuse, {{1}, {2}, {3}}).front(), 6);
  const auto says_why = ::testing::ThrowsMessage<Error>(::testing::EndsWith("threw: seven"));
  EXPECT_THAT([&] { combine<int>(DType::kInt32, refuse, {{1}, {2}, {4}}); }, says_why);
  EXPECT_THAT([&] { combine<int>(DType::kInt32, refuse, {{3}, {4}}); }, says_why);
  const auto throw_number = elementwise<int>([](int lhs, int /*rhs*/) -> int { throw lhs; });
  EXPECT_THAT([&] { combine<int>(DType::kInt32, throw_number, {{3}, {4}}); },
              ::testing::ThrowsMessage<Error>(::testing::EndsWith("is no std::exception")));
  EXPECT_TRUE(mode.is_intact());
}

TEST_P(ReduceUser, AFunctionIsNeeded) {
  const auto why = [&](const UserReduction* user) -> std::string {
    const int element = 1;
    int result = 0;
    const ReduceInput input{.data = &element, .is_partial = false};
    void* const output = &result;
    try {
      GetParam()({.dtype = DType::kInt32,
                  .kind = ReduceKind::kUser,
                  .inputs = std::span(&input, 1),
                  .steps = {},
                  .outputs = std::span(&output, 1),
                  .user = user},
                 1);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "nothing was thrown";
  };
  const UserReduction empty{};
  EXPECT_THAT(why(nullptr), ::testing::HasSubstr("needs a function"));
  EXPECT_THAT(why(&empty), ::testing::HasSubstr("needs a function"));
}

INSTANTIATE_TEST_SUITE_P(Both,
                         ReduceUser,
                         ::testing::Values(&reduce, &reduce_reference),
                         [](const auto& parameters) {
                           return parameters.param == &reduce ? "Planned" : "Reference";
                         });

}  // namespace
}  // namespace unisono::kernels
