#include "unisono/kernels/reduce.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory_resource>
#include <string>

#include "unisono/base/error.h"
#include "unisono/kernels/float_mode.h"
#include "unisono/kernels/pass.h"
#include "unisono/kernels/plan.h"

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

// Returns the types that a reduction supports, for error messages.
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

// One bit for each dtype. A table, because the check must be cheap for operations of a few bytes.
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

// Accepts any byte values, because a peer may have sent the arguments.
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
                std::string(to_string(kind)) + " is not defined for elements of " +
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
    refuse("a user-defined reduction needs a function that combines");
  }
}

namespace {

bool is_canonical(const ReduceTask& task) {
  if (task.inputs.size() == 2) {
    return task.steps.front().lhs == 0 && task.steps.front().rhs == 1;
  }
  std::array<Subtree, std::size_t{2} * kMaxPassInputs> values;
  const std::size_t n_inputs = task.inputs.size();
  for (std::size_t i = 0; i < n_inputs; ++i) {
    values[i] = {.from = static_cast<int>(i), .to = static_cast<int>(i) + 1};
  }
  for (std::size_t i = 0; i < task.steps.size(); ++i) {
    const ReduceStep step = task.steps[i];
    values[n_inputs + i] = join(values[static_cast<std::size_t>(step.lhs)],
                                values[static_cast<std::size_t>(step.rhs)]);
  }
  const Subtree result = values[n_inputs + task.steps.size() - 1];
  return result.size() == static_cast<int>(n_inputs);
}

// Returns the pass that does the whole task in one sweep over memory, or null.
Pass single_pass(const ReduceTask& task, const Lanes& lanes) {
  const std::size_t n_inputs = task.inputs.size();
  if (n_inputs > kMaxPassInputs || task.steps.size() != n_inputs - 1) {
    return nullptr;
  }
  const bool is_partial = task.inputs.front().is_partial;
  const auto is_like_first = [&](const ReduceInput& input) {
    return input.is_partial == is_partial;
  };
  if (lanes.are_partials_apart() && !std::ranges::all_of(task.inputs, is_like_first)) {
    return nullptr;
  }
  if (!is_canonical(task)) {
    return nullptr;
  }
  return find_pass({.dtype = lanes.dtype,
                    .op = lanes.op,
                    .n_inputs = static_cast<int>(n_inputs),
                    .is_input_partial = is_partial,
                    .is_output_partial = task.output_is_partial});
}

// An output that was just read is in a cache; streaming stores would evict it.
bool is_any_output_an_input(const ReduceTask& task) {
  return std::ranges::any_of(task.outputs, [&](const void* output) {
    return std::ranges::any_of(task.inputs,
                               [&](const ReduceInput& input) { return input.data == output; });
  });
}

void run_single_pass(Pass pass, const ReduceTask& task, std::int64_t n_lanes, bool is_streaming) {
  std::array<const void*, kMaxPassInputs> inputs;
  for (std::size_t i = 0; i < task.inputs.size(); ++i) {
    inputs[i] = task.inputs[i].data;
  }
  pass({.inputs = inputs.data(),
        .outputs = task.outputs,
        .count = n_lanes,
        .divisor = divisor_of(task),
        .factor = task.factor,
        .user = task.user,
        .is_streaming = is_streaming});
}

void run_blocks(const ReduceTask& task,
                const Lanes& lanes,
                std::int64_t n_lanes,
                bool is_streaming) {
  // Sufficient for about 64 inputs; with more inputs the cost of the heap is negligible.
  std::array<std::byte, 8192> storage;
  std::pmr::monotonic_buffer_resource memory(storage.data(), storage.size());
  const Plan plan = make_plan(task, lanes, &memory);
  run_plan(plan, task, lanes, n_lanes, is_streaming);
}

}  // namespace

void reduce(const ReduceTask& task, std::int64_t count) {
  check_task(task, count);
  const Lanes lanes = lanes_of(task.dtype, task.kind);
  const std::int64_t n_lanes = count * lanes.per_element;
  const bool is_streaming = task.is_streaming && !is_any_output_an_input(task);
  const FloatMode mode;
  if (const Pass pass = single_pass(task, lanes)) {
    run_single_pass(pass, task, n_lanes, is_streaming);
  } else if (has_passes() || task.kind == ReduceKind::kUser) {
    run_blocks(task, lanes, n_lanes, is_streaming);
  } else {
    reduce_reference(task, count);
  }
  if (is_streaming) {
    store_fence();
  }
}

void copy_streaming(void* to, const void* from, std::int64_t n_bytes) {
  const Pass pass = find_pass({.dtype = DType::kUInt8, .op = LaneOp::kSum, .n_inputs = 1});
  if (pass == nullptr) {
    std::memcpy(to, from, static_cast<std::size_t>(n_bytes));
    return;
  }
  pass({.inputs = &from, .outputs = std::span(&to, 1), .count = n_bytes, .is_streaming = true});
  store_fence();
}

}  // namespace unisono::kernels
