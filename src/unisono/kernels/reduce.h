#pragma once

#include <cstdint>
#include <span>

#include "unisono/base/dtype.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/kernels/reduce_tree.h"

namespace unisono {

struct UserReduction;

}  // namespace unisono

namespace unisono::kernels {

/// One input of a reduction: elements of the task's dtype, or partial results of other ranks, which
/// are of partial_dtype(dtype, kind).
struct ReduceInput {
  const void* data;
  bool is_partial;
};

/// What to combine, in which order, and where the result goes.
struct ReduceTask {
  DType dtype;
  ReduceKind kind;
  std::span<const ReduceInput> inputs;
  ReduceSteps steps;
  /// All get the same elements. An output may be the very memory of an input with elements of the
  /// same size (not overlap it otherwise).
  std::span<void* const> outputs;
  /// Leave the result unrounded and undivided, in partial_dtype(dtype, kind).
  bool output_is_partial = false;
  /// kAvg: what the sum is divided by, once, before the one rounding to dtype.
  int divisor = 1;
  /// kPremulSum: what every element that is not partial is multiplied by before it is added, the
  /// same on all ranks. It is rounded once to accumulate_dtype(dtype), or to the type of a complex
  /// number's parts; each product is rounded to that type, then added (never fused). Complex
  /// numbers are scaled part by part. NaN, infinities and the signs of zeros follow IEEE 754: 0
  /// times infinity is NaN, -1 times 0 is -0.
  double factor = 1;
  /// kUser: what combines two values; it has to live until reduce() returns. One input is copied.
  const UserReduction* user = nullptr;
  /// Store past the caches: faster for large outputs that nobody here reads soon. Ignored where an
  /// output is also an input, which is in a cache already, and for kUser.
  bool is_streaming = false;
};

/// Throws Error(kInvalidArgument) when the kind has no meaning for the dtype: avg and premul_sum of
/// integers and bool, min and max of complex numbers, bitwise kinds of anything but integers and
/// bool. A sum of bool is "or", a product "and"; to bitwise kinds it is one bit.
void check_reduction(DType dtype, ReduceKind kind);

/// Combines `count` elements of every input, element by element, in the order of the task's steps.
///
/// The bits of the result depend on inputs and steps alone: not on the instruction set, the count,
/// alignment, or the caller's floating point mode. Excepted are the signs and payloads of NaNs. MIN
/// and MAX are NaN where any input is NaN, and hold -0 to be less than +0. 16-bit floats are
/// combined in f32 and rounded once, at the end. Integers wrap around. Pointers need no alignment,
/// unless the user's own function asks for it. What that throws is an Error that names it, and
/// outputs are unspecified then. Thread-safe.
void reduce(const ReduceTask& task, std::int64_t count);

/// The same result from plain loops: what reduce() is tested against.
void reduce_reference(const ReduceTask& task, std::int64_t count);

/// memcpy past the caches, for large copies that nobody here reads soon.
void copy_streaming(void* to, const void* from, std::int64_t n_bytes);

}  // namespace unisono::kernels
