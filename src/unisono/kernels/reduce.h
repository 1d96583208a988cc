#pragma once

#include <cstdint>
#include <span>

#include "unisono/base/buffer.h"
#include "unisono/base/reduction.h"

namespace unisono::kernels {

/// Combines two earlier values into a new value. Values are numbered: first the inputs, then the
/// results of the steps in order.
struct ReduceStep {
  int lhs;
  int rhs;
};

/// The order of combination: the canonical tree as a list of steps. The value of the last step is
/// the result. A single input needs no step.
using ReduceSteps = std::span<const ReduceStep>;

/// One input of a reduction: elements of the task's dtype, or partial results of other ranks with
/// the type partial_dtype(dtype, kind).
struct ReduceInput {
  const void* data;
  bool is_partial;
};

/// A reduction: inputs, order of combination and outputs. The memory belongs to the caller and must
/// live until reduce() returns.
struct ReduceTask {
  DType dtype;
  ReduceKind kind;
  std::span<const ReduceInput> inputs;
  ReduceSteps steps;
  /// All outputs receive the same elements. An output may be the memory of an input with elements
  /// of the same size; other overlaps are not allowed.
  std::span<void* const> outputs;
  /// If true, the result stays unrounded and undivided, with the type partial_dtype(dtype, kind).
  bool output_is_partial = false;
  /// kAvg: divisor of the sum. Divides once, before the single rounding to dtype.
  int divisor = 1;
  /// kPremulSum: factor of each element that is not partial, the same on all ranks. Elements are
  /// multiplied before they are added.
  ///
  /// The factor is rounded once to accumulate_dtype(dtype), or to the type of a complex number's
  /// parts. Each product is rounded to that type, then added (never fused). Complex numbers are
  /// scaled part by part. NaN, infinities and the signs of zeros follow IEEE 754: 0 times infinity
  /// is NaN, -1 times 0 is -0.
  double factor = 1;
  /// kUser: the function that combines two values. Must live until reduce() returns. A single input
  /// is copied.
  const UserReduction* user = nullptr;
  /// Use streaming stores, which bypass the caches: faster for large outputs that are not read soon
  /// on this machine. Ignored for kUser, and if an output is also an input, which is in a cache
  /// already.
  bool is_streaming = false;
};

/// Throws Error(kInvalidArgument) if the kind is not defined for the dtype: avg and premul_sum of
/// integers and bool, min and max of complex numbers, bitwise kinds of other types than integers
/// and bool. The sum of bool is a logical "or", the product an "and"; for bitwise kinds a bool is a
/// single bit.
void check_reduction(DType dtype, ReduceKind kind);

/// Combines `count` elements of every input, element by element, in the order of the task's steps.
///
/// The bits of the result depend only on inputs and steps, not on the instruction set, the count,
/// the alignment, or the caller's floating point mode. The signs and payloads of NaNs are excepted.
/// MIN and MAX are NaN if any input is NaN, and order -0 before +0. 16-bit floats are combined in
/// f32 and rounded once, at the end. Integers wrap around. Pointers need no alignment unless the
/// user's function requires it.
///
/// Throws Error(kInvalidArgument) for an invalid task, and the errors of call_user(); the outputs
/// are unspecified after a throw. Thread-safe.
void reduce(const ReduceTask& task, std::int64_t count);

/// Computes the same result with scalar loops: the reference for tests of reduce().
void reduce_reference(const ReduceTask& task, std::int64_t count);

/// Copies with streaming stores, which bypass the caches: for large copies that this machine does
/// not read soon.
void copy_streaming(void* to, const void* from, std::int64_t n_bytes);

/// Throws Error(kInvalidArgument) if check_reduction() does, or if the task is invalid: no inputs,
/// no outputs, steps that use values which do not exist yet, a negative count, a divisor below 1,
/// or a missing function for kUser.
void check_task(const ReduceTask& task, std::int64_t count);

}  // namespace unisono::kernels
