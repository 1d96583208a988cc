#include "unisono/kernels/check_task.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/base/user_reduction.h"
#include "unisono/kernels/reduce.h"
#include "unisono/kernels/reduce_tree.h"

namespace unisono::kernels {
namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, "reduce: " + why);
}

constexpr bool is_complex(DType dtype) {
  return dtype == DType::kComplex64 || dtype == DType::kComplex128;
}

constexpr bool is_floating(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 || dtype == DType::kFloat32 ||
         dtype == DType::kFloat64 || is_complex(dtype);
}

// What the reduction, which has no meaning for all types, has one for.
constexpr const char* types_of(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::kAvg:
    case ReduceKind::kPremulSum:
      return "floating point";
    case ReduceKind::kMin:
    case ReduceKind::kMax:
      return "numbers that are not complex";
    default:
      return "integers and bool";
  }
}

constexpr bool is_meaningful(DType dtype, ReduceKind kind) {
  switch (kind) {
    case ReduceKind::kSum:
    case ReduceKind::kProduct:
    case ReduceKind::kUser:
      return true;
    case ReduceKind::kAvg:
    case ReduceKind::kPremulSum:
      return is_floating(dtype);
    case ReduceKind::kMin:
    case ReduceKind::kMax:
      return !is_complex(dtype);
    case ReduceKind::kBand:
    case ReduceKind::kBor:
    case ReduceKind::kBxor:
      return !is_floating(dtype);
  }
  return false;
}

// A bit for each dtype: operations of a few bytes ask as often as all others.
constexpr auto kReducible = [] {
  std::array<std::uint32_t, kReduceKindCount> bits{};
  for (int kind = 0; kind < kReduceKindCount; ++kind) {
    for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
      const bool is_set = is_meaningful(static_cast<DType>(dtype), static_cast<ReduceKind>(kind));
      bits[static_cast<std::size_t>(kind)] |= is_set ? 1U << static_cast<unsigned>(dtype) : 0U;
    }
  }
  return bits;
}();

// Both may be any byte that a peer sent.
bool is_reducible(DType dtype, ReduceKind kind) {
  const auto row = static_cast<std::size_t>(kind);
  const auto bit = static_cast<unsigned>(dtype);
  return row < kReducible.size() && bit < kDTypeCount && (kReducible[row] >> bit & 1U) != 0;
}

void check_steps(const ReduceTask& task) {
  const auto n_inputs = static_cast<int>(task.inputs.size());
  const auto n_steps = static_cast<int>(task.steps.size());
  if (n_inputs > 1 && n_steps == 0) {
    refuse(std::to_string(n_inputs) + " inputs, but no step that combines them");
  }
  for (int i = 0; i < n_steps; ++i) {
    const ReduceStep step = task.steps[static_cast<std::size_t>(i)];
    const int n_values = n_inputs + i;
    if (step.lhs < 0 || step.rhs < 0 || step.lhs >= n_values || step.rhs >= n_values) {
      refuse("step " + std::to_string(i) + " combines values " + std::to_string(step.lhs) +
             " and " + std::to_string(step.rhs) + ", but only " + std::to_string(n_values) +
             " exist before it");
    }
  }
}

}  // namespace

void check_reduction(DType dtype, ReduceKind kind) {
  if (!is_reducible(dtype, kind)) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string(to_string(kind)) + " has no meaning for elements of " +
                    to_string(dtype) + "; it is for " + types_of(kind));
  }
}

void check_task(const ReduceTask& task, std::int64_t count) {
  check_reduction(task.dtype, task.kind);
  if (task.inputs.empty() || task.outputs.empty()) {
    refuse(task.inputs.empty() ? "no inputs" : "no outputs");
  }
  check_steps(task);
  if (count < 0) {
    refuse("a count of " + std::to_string(count) + " elements");
  }
  if (task.kind == ReduceKind::kAvg && task.divisor < 1) {
    refuse("an average of " + std::to_string(task.divisor) + " contributions");
  }
  if (task.kind == ReduceKind::kUser && (task.user == nullptr || !task.user->combine)) {
    refuse("a reduction of the user's own needs a function that combines");
  }
}

}  // namespace unisono::kernels
