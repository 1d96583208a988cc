#pragma once

#include <cstdint>
#include <span>

#include "unisono/base/dtype.h"

namespace unisono {

struct UserReduction;

}  // namespace unisono

namespace unisono::kernels {

/// What a pass does with two lanes. Averages are sums; "or" and "and" of bool are kMax and kMin. A
/// scaled sum multiplies each element by the factor, then adds; partial values it only adds. kUser
/// takes whole elements for lanes.
enum class LaneOp : std::uint8_t {
  kSum,
  kProduct,
  kMin,
  kMax,
  kBand,
  kBor,
  kBxor,
  kScaledSum,
  kUser
};

/// One sweep over memory: combines a few inputs of one representation, in the canonical tree's
/// order, and stores the result to all outputs.
struct PassArgs {
  const void* const* inputs;
  std::span<void* const> outputs;
  /// Lanes, two to a complex number.
  std::int64_t count;
  /// Float sums: the result is divided by this; 1 divides nothing.
  int divisor = 1;
  /// Scaled sums: what elements are multiplied by.
  double factor = 1;
  /// Of kUser.
  const UserReduction* user = nullptr;
  /// Ends without a fence: whoever streams calls store_fence() before others may read.
  bool is_streaming = false;
};

using Pass = void (*)(const PassArgs&);

/// Sums of complex numbers, scaled or not, are sums of their parts: only products know kComplex64
/// and kComplex128. Bits are combined as kUInt8, whatever the integer; of kBool there is kBxor
/// alone. A 16-bit float's partial values are f32; all other types, and all of kUser, are their own
/// partials.
struct PassKey {
  DType dtype;
  LaneOp op;
  int n_inputs;
  bool is_input_partial = false;
  bool is_output_partial = false;
};

/// The most inputs that any pass combines.
inline constexpr int kMaxPassInputs = 8;

/// Whether there are passes for this CPU at all; those of kUser need no instruction set.
[[nodiscard]] bool has_passes();

/// The pass for this CPU; null where there is none. If this CPU has any, then every meaningful key
/// with one input has one, and every one with two partial inputs.
[[nodiscard]] Pass find_pass(const PassKey& key);

/// Makes streamed stores visible before all later stores.
void store_fence();

// The families behind find_pass, one .cpp each: together they would compile for a minute.
[[nodiscard]] Pass find_float_pass(const PassKey& key);
[[nodiscard]] Pass find_half_pass(const PassKey& key);
[[nodiscard]] Pass find_integer_pass(const PassKey& key);
[[nodiscard]] Pass find_user_pass(const PassKey& key);

}  // namespace unisono::kernels
