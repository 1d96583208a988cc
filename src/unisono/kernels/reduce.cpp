#include "unisono/kernels/reduce.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory_resource>
#include <span>

#include "unisono/base/dtype.h"
#include "unisono/kernels/check_task.h"
#include "unisono/kernels/float_mode.h"
#include "unisono/kernels/lanes.h"
#include "unisono/kernels/pass.h"
#include "unisono/kernels/plan.h"
#include "unisono/kernels/reduce_tree.h"
#include "unisono/kernels/subtree.h"

namespace unisono::kernels {
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

// Null unless one pass over memory does the whole task.
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

// An output that was read before lies in a cache, and streaming would throw it out.
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
  // Enough for about 64 inputs; beyond that the heap's cost is lost in the work.
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
