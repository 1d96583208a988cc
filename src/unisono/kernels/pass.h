#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/base/reduction.h"

namespace unisono::kernels {

/// Operation of a pass on two lanes. Averages are sums; "or" and "and" of bool are kMax and kMin. A
/// scaled sum multiplies each element by the factor before adding, but not partial values. For
/// kUser a lane is a whole element.
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

/// Arguments of one sweep over memory. A pass combines a few inputs of one representation in the
/// order of the canonical tree and stores the result to all outputs.
struct PassArgs {
  const void* const* inputs;
  std::span<void* const> outputs;
  /// Number of lanes; a complex number has two.
  std::int64_t count;
  /// Float sums: divisor of the result; 1 means no division.
  int divisor = 1;
  /// Scaled sums: factor of each element.
  double factor = 1;
  /// For kUser.
  const UserReduction* user = nullptr;
  /// A pass does not execute a fence: the caller calls store_fence() before other threads may read
  /// the outputs.
  bool is_streaming = false;
};

using Pass = void (*)(const PassArgs&);

/// Selects a pass.
///
/// Sums of complex numbers, scaled or not, are sums of the parts: only products use kComplex64 and
/// kComplex128. Bitwise operations use kUInt8 for all integers; for kBool only kBxor exists.
/// Partial values of 16-bit floats are f32; all other types, and all types of kUser, are equal to
/// their partial values.
struct PassKey {
  DType dtype;
  LaneOp op;
  int n_inputs;
  bool is_input_partial = false;
  bool is_output_partial = false;
};

/// Maximum number of inputs of a pass.
inline constexpr int kMaxPassInputs = 8;

/// Returns true if there are vectorized passes for this CPU. Passes of kUser exist on every CPU.
[[nodiscard]] bool has_passes();

/// Returns the pass for this CPU, null if there is none. If has_passes() is true, each valid key
/// with a single input or with two partial inputs has a pass. Thread-safe.
[[nodiscard]] Pass find_pass(const PassKey& key);

/// Makes streaming stores visible before all later stores.
void store_fence();

// The families of passes behind find_pass(), each in a separate .cpp, because a common file would
// compile for a minute.
[[nodiscard]] Pass find_float_pass(const PassKey& key);
[[nodiscard]] Pass find_half_pass(const PassKey& key);
[[nodiscard]] Pass find_integer_pass(const PassKey& key);
[[nodiscard]] Pass find_user_pass(const PassKey& key);

/// Calls the user's function for `count` elements. An Error of the function passes unchanged;
/// every other exception becomes Error(kInternal) that names the reduction.
inline void call_user(
    const UserReduction& user, const void* lhs, const void* rhs, void* result, std::size_t count) {
  try {
    user.combine(lhs, rhs, result, static_cast<std::int64_t>(count));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kInternal,
                "the function of reduction \"" + user.name + "\" threw: " + error.what());
  } catch (...) {
    throw Error(ErrorCode::kInternal,
                "the function of reduction \"" + user.name +
                    "\" threw an object that is no std::exception");
  }
}

}  // namespace unisono::kernels
