#include "unisono/kernels/pass.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

namespace unisono::kernels {
namespace {

void copy_to_all(const void* from,
                 std::span<void* const> outputs,
                 std::size_t offset,
                 std::size_t n_bytes) {
  for (void* const output : outputs) {
    void* const to = static_cast<std::byte*>(output) + offset;
    if (to != from && n_bytes > 0) {
      std::memcpy(to, from, n_bytes);
    }
  }
}

template <std::size_t element_bytes>
void copy_pass(const PassArgs& args) {
  copy_to_all(
      args.inputs[0], args.outputs, 0, static_cast<std::size_t>(args.count) * element_bytes);
}

template <std::size_t element_bytes>
void combine_pass(const PassArgs& args) {
  // Data that is copied to further outputs is still in the first-level cache.
  constexpr std::size_t kBlock = 4096 / element_bytes;
  const auto count = static_cast<std::size_t>(args.count);
  const std::size_t block = args.outputs.size() == 1 ? count : kBlock;
  const auto* const lhs = static_cast<const std::byte*>(args.inputs[0]);
  const auto* const rhs = static_cast<const std::byte*>(args.inputs[1]);
  auto* const result = static_cast<std::byte*>(args.outputs.front());
  for (std::size_t at = 0; at < count; at += block) {
    const std::size_t n_block = std::min(block, count - at);
    const std::size_t offset = at * element_bytes;
    call_user(*args.user, lhs + offset, rhs + offset, result + offset, n_block);
    copy_to_all(result + offset, args.outputs.subspan(1), offset, n_block * element_bytes);
  }
}

template <std::size_t element_bytes>
Pass pass_of(int n_inputs) {
  switch (n_inputs) {
    case 1:
      return &copy_pass<element_bytes>;
    case 2:
      return &combine_pass<element_bytes>;
    default:
      return nullptr;
  }
}

}  // namespace

Pass find_user_pass(const PassKey& key) {
  switch (size_of(key.dtype)) {
    case 1:
      return pass_of<1>(key.n_inputs);
    case 2:
      return pass_of<2>(key.n_inputs);
    case 4:
      return pass_of<4>(key.n_inputs);
    case 8:
      return pass_of<8>(key.n_inputs);
    default:
      return pass_of<16>(key.n_inputs);
  }
}

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

// Caches the pass of each key.
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
  // Cached, because the choice takes as long as combining a few elements.
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
