#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/kernels/float16.h"
#include "unisono/kernels/reduce.h"
#include "unisono/kernels/reduce_tree.h"
#include "unisono/kernels/test_support.h"

namespace unisono::kernels {
namespace {

using Random = std::mt19937;

int pick(Random& random, int from, int to) {
  return std::uniform_int_distribution<int>(from, to)(random);
}

bool one_in(Random& random, int n) {
  return pick(random, 1, n) == 1;
}

// The type whose NaNs matter in elements of dtype.
DType part_of(DType dtype) {
  switch (dtype) {
    case DType::kComplex64:
      return DType::kFloat32;
    case DType::kComplex128:
      return DType::kFloat64;
    default:
      return dtype;
  }
}

template <class T>
void put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

template <class T>
T get(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class T>
T special_float(Random& random) {
  using Limits = std::numeric_limits<T>;
  const T values[] = {T(0),
                      T(-0.0),
                      T(1),
                      T(-1),
                      T(1) + Limits::epsilon(),
                      Limits::infinity(),
                      -Limits::infinity(),
                      Limits::quiet_NaN(),
                      Limits::max(),
                      Limits::min(),
                      Limits::denorm_min(),
                      -3 * Limits::denorm_min(),
                      T(65504),
                      T(65519),
                      T(0x1p-24),
                      T(0x1p-25)};
  return values[pick(random, 0, std::size(values) - 1)];
}

constexpr std::uint16_t kSpecialHalves[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x3C00,
                                            0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0x7F80, 0x7FFF, 0xFFFF,
                                            0x7F7F, 0x0080, 0x007F, 0x3F80, 0x4300, 0x6800};

// Ordinary numbers, edge cases, and any bits at all.
void put_random_part(std::byte* to, DType dtype, Random& random) {
  const std::size_t size = size_of(dtype);
  for (std::size_t i = 0; i < size; ++i) {
    to[i] = static_cast<std::byte>(random());
  }
  const int choice = pick(random, 0, 7);
  const auto number = static_cast<float>(pick(random, -4096, 4096)) / 64;
  if (dtype == DType::kFloat32 && choice != 0) {
    put(to, choice == 1 ? special_float<float>(random) : number);
  } else if (dtype == DType::kFloat64 && choice != 0) {
    put(to, choice == 1 ? special_float<double>(random) : number / 3.0);
  } else if (dtype == DType::kFloat16 && choice != 0) {
    put(to, choice == 1 ? kSpecialHalves[random() % 20] : f16_from_float(number));
  } else if (dtype == DType::kBFloat16 && choice != 0) {
    put(to, choice == 1 ? kSpecialHalves[random() % 20] : bf16_from_float(number));
  } else if (dtype == DType::kBool && choice > 1) {
    to[0] = static_cast<std::byte>(choice % 2);
  }
}

void fill(const OffsetBytes& bytes, std::size_t n_bytes, DType dtype, Random& random) {
  const std::size_t step = size_of(part_of(dtype));
  for (std::size_t at = 0; at < n_bytes; at += step) {
    put_random_part(bytes.data() + at, part_of(dtype), random);
  }
}

bool is_nan(const std::byte* element, DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return std::isnan(float_from_f16(get<std::uint16_t>(element)));
    case DType::kBFloat16:
      return std::isnan(float_from_bf16(get<std::uint16_t>(element)));
    case DType::kFloat32:
      return std::isnan(get<float>(element));
    case DType::kFloat64:
      return std::isnan(get<double>(element));
    default:
      return false;
  }
}

// The first element that differs, NaNs being equal to each other.
std::optional<std::size_t> first_difference(const std::byte* expected,
                                            const std::byte* actual,
                                            std::size_t n_bytes,
                                            DType dtype) {
  if (std::memcmp(expected, actual, n_bytes) == 0) {
    return std::nullopt;
  }
  const std::size_t step = size_of(part_of(dtype));
  for (std::size_t at = 0; at < n_bytes; at += step) {
    const bool are_nan =
        is_nan(expected + at, part_of(dtype)) && is_nan(actual + at, part_of(dtype));
    if (!are_nan && std::memcmp(expected + at, actual + at, step) != 0) {
      return at / step;
    }
  }
  return std::nullopt;
}

std::vector<ReduceStep> random_tree(int n_inputs, Random& random) {
  std::vector<int> open(static_cast<std::size_t>(n_inputs));
  std::vector<ReduceStep> steps;
  for (int i = 0; i < n_inputs; ++i) {
    open[static_cast<std::size_t>(i)] = i;
  }
  while (open.size() > 1) {
    std::shuffle(open.begin(), open.end(), random);
    steps.push_back({.lhs = open.back(), .rhs = open[open.size() - 2]});
    open.pop_back();
    open.back() = n_inputs + static_cast<int>(steps.size()) - 1;
  }
  return steps;
}

// No tree: values are used again, or never.
std::vector<ReduceStep> random_steps(int n_inputs, Random& random) {
  std::vector<ReduceStep> steps;
  for (int n_values = n_inputs; n_values < 2 * n_inputs + 2; ++n_values) {
    steps.push_back({.lhs = pick(random, 0, n_values - 1), .rhs = pick(random, 0, n_values - 1)});
  }
  return steps;
}

std::vector<ReduceStep> any_steps(int n_inputs, Random& random) {
  switch (pick(random, 0, 3)) {
    case 0:
      return random_tree(n_inputs, random);
    case 1:
      return random_steps(n_inputs, random);
    default:
      return canonical_steps(n_inputs);
  }
}

// A task with its memory; copies have memory of their own.
struct Trial {
  static constexpr std::size_t kGuardBytes = 80;

  ReduceTask shape{};
  std::vector<ReduceStep> steps;
  std::vector<bool> is_partial;
  std::vector<OffsetBytes> buffers;
  // Indices of buffers.
  std::vector<std::size_t> outputs;
  std::int64_t count = 0;

  [[nodiscard]] DType output_dtype() const {
    return shape.output_is_partial ? accumulate_dtype(shape.dtype) : shape.dtype;
  }

  void run(void (*reduction)(const ReduceTask&, std::int64_t)) const {
    std::vector<ReduceInput> inputs;
    for (std::size_t i = 0; i < is_partial.size(); ++i) {
      inputs.push_back({.data = buffers[i].data(), .is_partial = is_partial[i]});
    }
    std::vector<void*> to;
    for (const std::size_t output : outputs) {
      to.push_back(buffers[output].data());
    }
    ReduceTask task = shape;
    task.inputs = inputs;
    task.steps = steps;
    task.outputs = to;
    reduction(task, count);
  }
};

void add_outputs(Trial& trial, Random& random) {
  const std::size_t size = size_of(trial.output_dtype()) * static_cast<std::size_t>(trial.count);
  const int n_outputs = pick(random, 1, 3);
  const int common_offset = pick(random, 0, 63);
  for (int i = 0; i < n_outputs; ++i) {
    const std::size_t input = random() % trial.is_partial.size();
    const bool is_aliased = one_in(random, 3) && trial.buffers[input].size() == size;
    const bool is_taken = std::ranges::find(trial.outputs, input) != trial.outputs.end();
    if (is_aliased && !is_taken) {
      trial.outputs.push_back(input);
      continue;
    }
    const int offset = one_in(random, 4) ? pick(random, 0, 63) : common_offset;
    trial.outputs.push_back(trial.buffers.size());
    trial.buffers.emplace_back(size + Trial::kGuardBytes, static_cast<std::size_t>(offset));
  }
}

Trial make_trial(DType dtype, ReduceKind kind, int n_inputs, Random& random) {
  Trial trial;
  trial.shape.dtype = dtype;
  trial.shape.kind = kind;
  trial.shape.output_is_partial = one_in(random, 4);
  trial.shape.divisor = pick(random, 1, 12);
  trial.shape.is_streaming = one_in(random, 2);
  trial.steps = any_steps(n_inputs, random);
  trial.count = one_in(random, 8) ? pick(random, 900, 2600) : pick(random, 0, 150);
  const int partial_style = pick(random, 0, 3);
  for (int i = 0; i < n_inputs; ++i) {
    trial.is_partial.push_back(partial_style == 0 || (partial_style == 1 && one_in(random, 2)));
    const DType type = trial.is_partial.back() ? accumulate_dtype(dtype) : dtype;
    const std::size_t size = size_of(type) * static_cast<std::size_t>(trial.count);
    const int offset = one_in(random, 2) ? pick(random, 0, 63) : 0;
    trial.buffers.emplace_back(size, static_cast<std::size_t>(offset));
    fill(trial.buffers.back(), size, type, random);
  }
  add_outputs(trial, random);
  return trial;
}

std::string describe(const Trial& trial, std::int64_t target) {
  std::string text = "target " + std::to_string(target) + ", count " + std::to_string(trial.count) +
                     ", outputs " + std::to_string(trial.outputs.size()) + ", streaming " +
                     std::to_string(trial.shape.is_streaming) + ", partial output " +
                     std::to_string(trial.shape.output_is_partial) + ", steps";
  for (const ReduceStep step : trial.steps) {
    text += " " + std::to_string(step.lhs) + "+" + std::to_string(step.rhs);
  }
  return text;
}

void expect_same_memory(const Trial& expected, const Trial& actual, std::int64_t target) {
  for (std::size_t i = 0; i < expected.buffers.size(); ++i) {
    const OffsetBytes& wanted = expected.buffers[i];
    const OffsetBytes& got = actual.buffers[i];
    const bool is_output = std::ranges::find(expected.outputs, i) != expected.outputs.end();
    const std::size_t n_result =
        is_output ? size_of(expected.output_dtype()) * static_cast<std::size_t>(expected.count) : 0;
    const auto difference =
        first_difference(wanted.data(), got.data(), n_result, expected.output_dtype());
    ASSERT_EQ(difference, std::nullopt) << "buffer " << i << ", " << describe(expected, target);
    ASSERT_EQ(
        std::memcmp(wanted.data() + n_result, got.data() + n_result, wanted.size() - n_result), 0)
        << "memory of buffer " << i << " that is no output changed: " << describe(expected, target);
  }
}

class ReduceDifferential : public ::testing::TestWithParam<std::tuple<DType, ReduceKind>> {
 protected:
  void TearDown() override { choose_target(0); }
};

TEST_P(ReduceDifferential, EveryInstructionSetGivesTheReferencesBits) {
  constexpr int kTrials = 24;
  const auto [dtype, kind] = GetParam();
  Random random(static_cast<unsigned>(dtype) * 16U + static_cast<unsigned>(kind));
  for (int n_inputs = 1; n_inputs <= 9; ++n_inputs) {
    for (int i = 0; i < kTrials; ++i) {
      const Trial trial = make_trial(dtype, kind, n_inputs, random);
      const Trial expected = trial;
      expected.run(reduce_reference);
      for (const std::int64_t target : supported_targets()) {
        choose_target(target);
        const Trial actual = trial;
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
  constexpr int kInputs = 1500;
  Random random(1);
  Trial trial;
  trial.shape.dtype = DType::kBFloat16;
  trial.shape.kind = ReduceKind::kAvg;
  trial.shape.divisor = kInputs;
  trial.count = 77;
  for (int i = 0; i < kInputs; ++i) {
    trial.is_partial.push_back(false);
    trial.buffers.emplace_back(2 * 77, 0);
    fill(trial.buffers.back(), 2 * 77, DType::kBFloat16, random);
  }
  for (int i = 0; i + 1 < kInputs; ++i) {
    trial.steps.push_back({.lhs = 2 * i, .rhs = 2 * i + 1});
  }
  trial.outputs.push_back(trial.buffers.size());
  trial.buffers.emplace_back(2 * 77, 2);
  const Trial expected = trial;
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
