#include "unisono/kernels/random_trial.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "unisono/base/dtype.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/kernels/random_elements.h"
#include "unisono/kernels/reduce_tree.h"
#include "unisono/kernels/test_support.h"

namespace unisono::kernels {
namespace {

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

// Some are rounded, flushed or infinite in f32.
double random_factor(Random& random) {
  constexpr double kFactors[] = {1,
                                 0.1,
                                 1.0 / 3,
                                 -2.5,
                                 -0.0,
                                 0,
                                 0x1.000001p0,
                                 1e-42,
                                 1e-310,
                                 1e300,
                                 std::numeric_limits<double>::infinity(),
                                 std::numeric_limits<double>::quiet_NaN()};
  return kFactors[static_cast<std::size_t>(pick(random, 0, std::size(kFactors) - 1))];
}

// Neither commutative nor associative, so that the order shows.
auto byte_mixer(DType dtype) {
  return [dtype](const void* lhs, const void* rhs, void* result, std::int64_t count) {
    const std::size_t n_bytes = static_cast<std::size_t>(count) * size_of(dtype);
    for (std::size_t i = 0; i < n_bytes; ++i) {
      const unsigned left = static_cast<const std::uint8_t*>(lhs)[i];
      const unsigned right = static_cast<const std::uint8_t*>(rhs)[i];
      static_cast<std::uint8_t*>(result)[i] = static_cast<std::uint8_t>(3 * left + 5 * right + 1);
    }
  };
}

void add_outputs(Trial& trial, Random& random) {
  const std::size_t size = size_of(trial.output_dtype()) * static_cast<std::size_t>(trial.count);
  // A few, or one for each input, as symmetric memory has them.
  const auto n_inputs = static_cast<int>(trial.is_partial.size());
  const int n_outputs = one_in(random, 3) ? n_inputs : pick(random, 1, 3);
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

}  // namespace

Trial make_trial(DType dtype, ReduceKind kind, int n_inputs, Random& random) {
  Trial trial;
  trial.shape.dtype = dtype;
  trial.shape.kind = kind;
  trial.shape.output_is_partial = one_in(random, 4);
  trial.shape.divisor = pick(random, 1, 12);
  trial.shape.factor = random_factor(random);
  trial.user.combine = byte_mixer(dtype);
  trial.shape.is_streaming = one_in(random, 2);
  trial.steps = any_steps(n_inputs, random);
  trial.count = one_in(random, 12) ? pick(random, 900, 2600) : pick(random, 0, 150);
  const int partial_style = pick(random, 0, 3);
  for (int i = 0; i < n_inputs; ++i) {
    trial.is_partial.push_back(partial_style == 0 || (partial_style == 1 && one_in(random, 2)));
    const DType type = trial.is_partial.back() ? partial_dtype(dtype, kind) : dtype;
    const std::size_t size = size_of(type) * static_cast<std::size_t>(trial.count);
    const int offset = one_in(random, 2) ? pick(random, 0, 63) : 0;
    trial.buffers.emplace_back(size, static_cast<std::size_t>(offset));
    fill(trial.buffers.back(), size, type, random);
  }
  add_outputs(trial, random);
  return trial;
}

std::string describe(const Trial& trial) {
  std::string text = "count " + std::to_string(trial.count) + ", outputs " +
                     std::to_string(trial.outputs.size()) + ", streaming " +
                     std::to_string(trial.shape.is_streaming) + ", partial output " +
                     std::to_string(trial.shape.output_is_partial) + ", factor " +
                     std::to_string(trial.shape.factor) + ", steps";
  for (const ReduceStep step : trial.steps) {
    text += " " + std::to_string(step.lhs) + "+" + std::to_string(step.rhs);
  }
  return text;
}

}  // namespace unisono::kernels
