#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/base/user_reduction.h"
#include "unisono/kernels/reduce.h"
#include "unisono/kernels/reduce_tree.h"
#include "unisono/kernels/test_support.h"

namespace unisono::kernels {
namespace {

using Reduction = void (*)(const ReduceTask&, std::int64_t);

/// A function of single elements as a user's function of many.
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
  // Element i of the result is made of element i of each input.
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
    // What is 1 on the right stays 1; what is i on the left doubles its distance from 1 each time.
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
  // Off a cache line, so that the first block is a short one.
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
