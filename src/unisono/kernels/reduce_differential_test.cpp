#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/kernels/instruction_sets.h"
#include "unisono/kernels/random_elements.h"
#include "unisono/kernels/random_trial.h"
#include "unisono/kernels/reduce.h"
#include "unisono/kernels/test_support.h"

namespace unisono {

// How a test's parameter is printed.
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

// A plan of more live values than the blocks' scratch memory holds.
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

}  // namespace
}  // namespace unisono::kernels
