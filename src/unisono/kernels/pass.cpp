#include "unisono/kernels/pass.h"

#include <hwy/cache_control.h>

#include <array>
#include <atomic>
#include <cstddef>

#include "unisono/base/dtype.h"

namespace unisono::kernels {

namespace {

Pass choose_pass(const PassKey& key) {
  if (key.op == LaneOp::kUser) [[unlikely]] {
    return find_user_pass(key);
  }
  if (key.op == LaneOp::kScaledSum && key.is_input_partial) [[unlikely]] {
    PassKey sum = key;
    sum.op = LaneOp::kSum;
    return choose_pass(sum);
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

// One for each key.
class PassCache {
 public:
  std::atomic<Pass>& of(const PassKey& key) {
    const auto& [dtype, op, n_inputs, is_input_partial, is_output_partial] = key;
    const std::size_t row =
        (static_cast<std::size_t>(dtype) * kOps + static_cast<std::size_t>(op)) *
            (kMaxPassInputs + 1) +
        static_cast<std::size_t>(n_inputs);
    return passes_[row * 4 + (is_input_partial ? 2 : 0) + (is_output_partial ? 1 : 0)];
  }

 private:
  static constexpr std::size_t kOps = static_cast<std::size_t>(LaneOp::kUser) + 1;

  std::array<std::atomic<Pass>, std::size_t{kDTypeCount} * kOps*(kMaxPassInputs + 1) * 4> passes_{};
};

}  // namespace

Pass find_pass(const PassKey& key) {
  // Choosing takes as long as combining a few elements does.
  static constinit PassCache cache;
  std::atomic<Pass>& known = cache.of(key);
  Pass pass = known.load(std::memory_order_relaxed);
  if (pass == nullptr) [[unlikely]] {
    pass = choose_pass(key);
    known.store(pass, std::memory_order_relaxed);
  }
  return pass;
}

bool has_passes() {
  return find_integer_pass({.dtype = DType::kUInt8, .op = LaneOp::kSum, .n_inputs = 1}) != nullptr;
}

void store_fence() {
  hwy::FlushStream();
}

}  // namespace unisono::kernels
