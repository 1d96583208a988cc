#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "unisono/base/dtype.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/base/user_reduction.h"
#include "unisono/kernels/random_elements.h"
#include "unisono/kernels/reduce.h"
#include "unisono/kernels/reduce_tree.h"
#include "unisono/kernels/test_support.h"

namespace unisono::kernels {

/// A task with its memory; copies have memory of their own.
struct Trial {
  static constexpr std::size_t kGuardBytes = 80;

  ReduceTask shape{};
  UserReduction user;
  std::vector<ReduceStep> steps;
  std::vector<bool> is_partial;
  std::vector<OffsetBytes> buffers;
  // Indices of buffers.
  std::vector<std::size_t> outputs;
  std::int64_t count = 0;

  [[nodiscard]] DType output_dtype() const {
    return shape.output_is_partial ? partial_dtype(shape.dtype, shape.kind) : shape.dtype;
  }

  void run(void (*reduction)(const ReduceTask&, std::int64_t)) {
    std::vector<ReduceInput> inputs;
    inputs.reserve(is_partial.size());
    for (std::size_t i = 0; i < is_partial.size(); ++i) {
      inputs.push_back({.data = buffers[i].data(), .is_partial = is_partial[i]});
    }
    std::vector<void*> to;
    to.reserve(outputs.size());
    for (const std::size_t output : outputs) {
      to.push_back(buffers[output].data());
    }
    ReduceTask task = shape;
    task.inputs = inputs;
    task.steps = steps;
    task.outputs = to;
    task.user = &user;
    reduction(task, count);
  }
};

[[nodiscard]] Trial make_trial(DType dtype, ReduceKind kind, int n_inputs, Random& random);

/// What a failure's reader has to know.
[[nodiscard]] std::string describe(const Trial& trial);

}  // namespace unisono::kernels
