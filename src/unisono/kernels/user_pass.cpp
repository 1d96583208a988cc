#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "unisono/base/dtype.h"
#include "unisono/kernels/call_user.h"
#include "unisono/kernels/pass.h"

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
  // What is copied to more outputs is still in the first cache.
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

}  // namespace unisono::kernels
