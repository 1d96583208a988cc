#include "unisono/kernels/testing/test_support.h"

#include <hwy/detect_targets.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/reduction.h"
#include "unisono/kernels/reduce.h"
#include "unisono/kernels/small_floats.h"
#include "unisono/kernels/targets.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace unisono::kernels {

std::vector<std::int64_t> instruction_sets() {
  std::vector<std::int64_t> targets;
  for (std::int64_t rest = supported_targets(); rest != 0; rest &= rest - 1) {
    targets.push_back(rest & -rest);
  }
  targets.push_back(HWY_STATIC_TARGET);
  return targets;
}

#if defined(__x86_64__)
namespace {

constexpr std::uint32_t kFlushAndRoundUp = 0x8000U | 0x4000U | 0x0040U | 0x1F80U;
constexpr std::uint32_t kSticky = 0x3FU;

}  // namespace

HostileMode::HostileMode() : saved_(_mm_getcsr()) {
  _mm_setcsr(kFlushAndRoundUp);
}

HostileMode::~HostileMode() {
  _mm_setcsr(static_cast<unsigned int>(saved_));
}

bool HostileMode::is_intact() const {
  return (_mm_getcsr() & ~kSticky) == kFlushAndRoundUp;
}
#else
HostileMode::HostileMode() : saved_(static_cast<std::uint64_t>(std::fegetround())) {
  std::fesetround(FE_UPWARD);
}

HostileMode::~HostileMode() {
  std::fesetround(static_cast<int>(saved_));
}

bool HostileMode::is_intact() const {
  return std::fegetround() == FE_UPWARD;
}
#endif

namespace {

// Returns the type of the parts of an element, which may be NaN.
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

void put_random_part(std::byte* to, DType dtype, Random& random) {
  const std::size_t size = size_of(dtype);
  const std::uint64_t bits = (static_cast<std::uint64_t>(random()) << 32U) | random();
  std::memcpy(to, &bits, size);
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

}  // namespace

int pick(Random& random, int from, int to) {
  return std::uniform_int_distribution<int>(from, to)(random);
}

bool one_in(Random& random, int n) {
  return pick(random, 1, n) == 1;
}

void fill(const OffsetBytes& bytes, std::size_t n_bytes, DType dtype, Random& random) {
  const std::size_t step = size_of(part_of(dtype));
  for (std::size_t at = 0; at < n_bytes; at += step) {
    put_random_part(bytes.data() + at, part_of(dtype), random);
  }
}

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

// Returns steps that form no tree: values are used several times, or never.
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

// Returns a factor; some factors are rounded, flushed or infinite in f32.
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

// Returns a function that is neither commutative nor associative, so that the result depends on the
// order.
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
  // A few outputs, or an output for each input.
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
