#include <cstdint>

#include "unisono/base/buffer.h"
#include "unisono/kernels/pass.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "unisono/kernels/integer_passes.cpp"
#include "unisono/kernels/targets.h"
// clang-format off: the order matters to Highway
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "unisono/kernels/pass-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();

namespace unisono::kernels::HWY_NAMESPACE {
namespace {

#if UNISONO_IS_VECTOR_TARGET

// Reads every byte except 0 as true; writes 0 or 1.
struct Bool {
  using Lane = std::uint8_t;
  using Memory = std::uint8_t;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::uint8_t* from) {
    return hn::Min(load_bytes(d, from), hn::Set(d, 1));
  }
};

// The supported CPUs have no multiplication of bytes.
struct WideByte {
  using Lane = std::uint16_t;
  using Memory = std::uint8_t;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::uint8_t* from) {
    return hn::PromoteTo(d, load_bytes(hn::Rebind<std::uint8_t, D>(), from));
  }

  template <class D>
  static HWY_INLINE void store(hn::Vec<D> v, D /*d*/, std::uint8_t* to, bool is_streaming) {
    const hn::Rebind<std::uint8_t, D> d8;
    store_bytes(hn::TruncateTo(d8, v), d8, to, is_streaming);
  }
};

struct BitAnd {
  static constexpr std::size_t kUnit = 1;

  template <class D, class V>
  static HWY_INLINE V apply(D /*d*/, V a, V b) {
    return hn::And(a, b);
  }
};

struct BitOr {
  static constexpr std::size_t kUnit = 1;

  template <class D, class V>
  static HWY_INLINE V apply(D /*d*/, V a, V b) {
    return hn::Or(a, b);
  }
};

struct BitXor {
  static constexpr std::size_t kUnit = 1;

  template <class D, class V>
  static HWY_INLINE V apply(D /*d*/, V a, V b) {
    return hn::Xor(a, b);
  }
};

// Wrapping sums and products have equal bits for signed and unsigned types.
template <class Signed, class Unsigned, class Factor = Plain<Unsigned>>
Pass wrapping_pass(const PassKey& key, bool is_signed) {
  using In = Plain<Unsigned>;
  using SignedIn = Plain<Signed>;
  switch (key.op) {
    case LaneOp::kSum:
      return pass_of_one_or_two<In, In, Sum>(key.n_inputs);
    case LaneOp::kProduct:
      return key.n_inputs == 1 ? &run_pass<In, In, Sum, 1>
                               : pass_of_one_or_two<Factor, Factor, Product>(key.n_inputs);
    case LaneOp::kMin:
      return is_signed ? pass_of_one_or_two<SignedIn, SignedIn, Extreme<true>>(key.n_inputs)
                       : pass_of_one_or_two<In, In, Extreme<true>>(key.n_inputs);
    case LaneOp::kMax:
      return is_signed ? pass_of_one_or_two<SignedIn, SignedIn, Extreme<false>>(key.n_inputs)
                       : pass_of_one_or_two<In, In, Extreme<false>>(key.n_inputs);
    default:
      return nullptr;
  }
}

Pass bit_pass(const PassKey& key) {
  using Byte = Plain<std::uint8_t>;
  switch (key.op) {
    case LaneOp::kBand:
      return pass_of_one_or_two<Byte, Byte, BitAnd>(key.n_inputs);
    case LaneOp::kBor:
      return pass_of_one_or_two<Byte, Byte, BitOr>(key.n_inputs);
    case LaneOp::kBxor:
      return pass_of_one_or_two<Byte, Byte, BitXor>(key.n_inputs);
    default:
      return nullptr;
  }
}

Pass bool_pass(const PassKey& key) {
  using Out = Plain<std::uint8_t>;
  switch (key.op) {
    case LaneOp::kMin:
      return pass_of_one_or_two<Bool, Out, Extreme<true>>(key.n_inputs);
    case LaneOp::kMax:
      return pass_of_one_or_two<Bool, Out, Extreme<false>>(key.n_inputs);
    case LaneOp::kBxor:
      return pass_of_one_or_two<Bool, Out, BitXor>(key.n_inputs);
    default:
      return nullptr;
  }
}

Pass choose_integer_pass(const PassKey& key) {
  switch (key.dtype) {
    case DType::kUInt8:
      if (const Pass pass = bit_pass(key)) {
        return pass;
      }
      [[fallthrough]];
    case DType::kInt8:
      return wrapping_pass<std::int8_t, std::uint8_t, WideByte>(key, key.dtype == DType::kInt8);
    case DType::kInt16:
    case DType::kUInt16:
      return wrapping_pass<std::int16_t, std::uint16_t>(key, key.dtype == DType::kInt16);
    case DType::kInt32:
    case DType::kUInt32:
      return wrapping_pass<std::int32_t, std::uint32_t>(key, key.dtype == DType::kInt32);
    case DType::kInt64:
    case DType::kUInt64:
      return wrapping_pass<std::int64_t, std::uint64_t>(key, key.dtype == DType::kInt64);
    case DType::kBool:
      return bool_pass(key);
    default:
      return nullptr;
  }
}
#else
Pass choose_integer_pass(const PassKey& /*key*/) {
  return nullptr;
}
#endif

}  // namespace
}  // namespace unisono::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "unisono/kernels/dispatch.h"

namespace unisono::kernels {
Pass find_integer_pass(const PassKey& key) {
  return UNISONO_DISPATCH(choose_integer_pass)(key);
}

}  // namespace unisono::kernels
#endif  // HWY_ONCE
