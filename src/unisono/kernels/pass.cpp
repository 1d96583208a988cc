#include "unisono/kernels/pass.h"

#include <hwy/cache_control.h>

#include "unisono/base/dtype.h"

namespace unisono::kernels {

Pass find_pass(const PassKey& key) {
  if (key.op == LaneOp::kUser) [[unlikely]] {
    return find_user_pass(key);
  }
  if (key.op == LaneOp::kScaledSum && key.is_input_partial) [[unlikely]] {
    PassKey sum = key;
    sum.op = LaneOp::kSum;
    return find_pass(sum);
  }
  switch (key.dtype) {
    case DType::kFloat16:
    case DType::kBFloat16:
      if (key.is_input_partial && key.is_output_partial) {
        return find_float_pass({.dtype = DType::kFloat32, .op = key.op, .n_inputs = key.n_inputs});
      }
      return find_half_pass(key);
    case DType::kFloat32:
    case DType::kFloat64:
    case DType::kComplex64:
    case DType::kComplex128:
      return find_float_pass(key);
    default:
      return find_integer_pass(key);
  }
}

bool has_passes() {
  return find_integer_pass({.dtype = DType::kUInt8, .op = LaneOp::kSum, .n_inputs = 1}) != nullptr;
}

void store_fence() {
  hwy::FlushStream();
}

}  // namespace unisono::kernels
