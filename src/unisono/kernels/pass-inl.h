// Included once per instruction set through <hwy/foreach_target.h>, so there is no #pragma once.
#if defined(UNISONO_KERNELS_PASS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef UNISONO_KERNELS_PASS_INL_H
#undef UNISONO_KERNELS_PASS_INL_H
#else
#define UNISONO_KERNELS_PASS_INL_H
#endif

#include <hwy/highway.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "unisono/kernels/pass.h"
#include "unisono/kernels/targets.h"

#if UNISONO_IS_VECTOR_TARGET

HWY_BEFORE_NAMESPACE();

namespace unisono::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Loads through bytes, because pointers need not be aligned, not even to an element.
template <class D>
HWY_INLINE hn::Vec<D> load_bytes(D d, const std::uint8_t* from) {
  return hn::BitCast(d, hn::LoadU(hn::Repartition<std::uint8_t, D>(), from));
}

template <class D>
HWY_INLINE void store_bytes(hn::Vec<D> v, D /*d*/, std::uint8_t* to, bool is_streaming) {
  const hn::Repartition<std::uint8_t, D> d8;
  // Highway supports streaming stores only for vectors of at least 16 bytes.
  if constexpr (hn::MaxLanes(d8) >= 16) {
    if (is_streaming) {
      hn::Stream(hn::BitCast(d8, v), d8, to);
      return;
    }
  }
  hn::StoreU(hn::BitCast(d8, v), d8, to);
}

// An element type: its representation in memory, and the lane type in which elements are combined.
template <class T>
struct Plain {
  using Lane = T;
  using Memory = T;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::uint8_t* from) {
    return load_bytes(d, from);
  }

  template <class D>
  static HWY_INLINE void store(hn::Vec<D> v, D d, std::uint8_t* to, bool is_streaming) {
    store_bytes(v, d, to, is_streaming);
  }
};

struct Sum {
  // Number of lanes that must be processed together: a complex product needs both parts.
  static constexpr std::size_t kUnit = 1;

  template <class D, class V>
  static HWY_INLINE V apply(D /*d*/, V a, V b) {
    return hn::Add(a, b);
  }
};

// A sum with inputs that are scaled when loaded.
struct ScaledSum : Sum {};

struct Product {
  static constexpr std::size_t kUnit = 1;

  template <class D, class V>
  static HWY_INLINE V apply(D /*d*/, V a, V b) {
    return hn::Mul(a, b);
  }
};

template <bool IsMin>
struct Extreme {
  static constexpr std::size_t kUnit = 1;

  template <class D, class V>
  static HWY_INLINE V apply(D /*d*/, V a, V b) {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
      // Equal lanes with different bits are zeros: -0 counts as less than +0. The sum of unordered
      // lanes is NaN.
      const V equal = IsMin ? hn::Or(a, b) : hn::And(a, b);
      const V tie_or_nan = hn::IfThenElse(hn::Eq(a, b), equal, hn::Add(a, b));
      const V not_less = hn::IfThenElse(hn::Lt(b, a), IsMin ? b : a, tie_or_nan);
      return hn::IfThenElse(hn::Lt(a, b), IsMin ? a : b, not_less);
    } else {
      return IsMin ? hn::Min(a, b) : hn::Max(a, b);
    }
  }
};

// Combines inputs [From, To) in the order of the left-balanced tree.
template <class In, class Op, int From, int To, class D>
HWY_INLINE hn::Vec<D> combine_tree(D d,
                                   const std::uint8_t* const* inputs,
                                   std::size_t at,
                                   hn::TFromD<D> factor) {
  if constexpr (To - From == 1) {
    const hn::Vec<D> loaded = In::load(d, inputs[From] + at * sizeof(typename In::Memory));
    if constexpr (std::is_same_v<Op, ScaledSum>) {
      return hn::Mul(loaded, hn::Set(d, factor));
    } else {
      return loaded;
    }
  } else {
    constexpr int middle =
        From + static_cast<int>(std::bit_floor(static_cast<unsigned>(To - From - 1)));
    return Op::apply(d,
                     combine_tree<In, Op, From, middle>(d, inputs, at, factor),
                     combine_tree<In, Op, middle, To>(d, inputs, at, factor));
  }
}

// Value of Sweep's `Outputs`: the number of outputs is known only at run time.
inline constexpr int kAnyNumber = 0;

// Copies of the arguments in the form that the inner loop needs. If the number of outputs is known
// at compile time, the addresses stay in registers, which saves a third of the time for data in the
// caches.
template <class In, class Out, class Op, int Inputs, int Outputs>
struct Sweep {
  using Lane = typename In::Lane;

  const std::uint8_t* inputs[Inputs];
  void* const* outputs;
  std::uint8_t* known_outputs[HWY_MAX(Outputs, 1)];
  std::size_t n_outputs;
  std::size_t n_lanes;
  Lane divisor;
  Lane factor = 1;
  bool is_divided;
  bool is_streaming;

  template <class D>
  HWY_INLINE hn::Vec<D> result(D d, std::size_t at) const {
    const hn::Vec<D> combined = combine_tree<In, Op, 0, Inputs>(d, inputs, at, factor);
    if constexpr (hwy::IsFloat<Lane>() && std::is_same_v<Op, Sum>) {
      return is_divided ? hn::Div(combined, hn::Set(d, divisor)) : combined;
    } else {
      return combined;
    }
  }

  // Calls store(address) with the address of lane `at` in each output.
  template <int Index = 0, class Store>
  HWY_INLINE void for_each_output(std::size_t at, const Store& store) const {
    const std::size_t offset = at * sizeof(typename Out::Memory);
    if constexpr (Outputs == kAnyNumber) {
      const std::size_t n = n_outputs;  // Read once, because a store might change the member.
      for (std::size_t i = 0; i < n; ++i) {
        store(static_cast<std::uint8_t*>(outputs[i]) + offset);
      }
    } else if constexpr (Index < Outputs) {
      store(known_outputs[Index] + offset);
      for_each_output<Index + 1>(at, store);
    }
  }

  template <class D>
  HWY_INLINE void one_vector(D d, std::size_t at, bool is_streamed) const {
    const hn::Vec<D> v = result(d, at);
    for_each_output(at, [&](std::uint8_t* out) HWY_ATTR { Out::store(v, d, out, is_streamed); });
  }

  // Number of vectors per iteration: loads and additions of one vector overlap those of the next.
  // Conversions need the registers that four vectors would occupy.
  static constexpr std::size_t kVectors =
      sizeof(typename In::Memory) == sizeof(Lane) && sizeof(typename Out::Memory) == sizeof(Lane)
          ? 4
          : 2;

  template <class D>
  HWY_INLINE void several_vectors(D d, std::size_t at) const {
    const std::size_t lanes = hn::Lanes(d);
    const std::size_t vector_bytes = lanes * sizeof(typename Out::Memory);
    // Read once, because the compiler must assume that a store through a byte pointer changes the
    // member.
    const bool is_streamed = is_streaming;
    const hn::Vec<D> v0 = result(d, at);
    const hn::Vec<D> v1 = result(d, at + lanes);
    if constexpr (kVectors == 2) {
      for_each_output(at, [&](std::uint8_t* out) HWY_ATTR {
        Out::store(v0, d, out, is_streamed);
        Out::store(v1, d, out + vector_bytes, is_streamed);
      });
    } else {
      const hn::Vec<D> v2 = result(d, at + 2 * lanes);
      const hn::Vec<D> v3 = result(d, at + 3 * lanes);
      for_each_output(at, [&](std::uint8_t* out) HWY_ATTR {
        Out::store(v0, d, out, is_streamed);
        Out::store(v1, d, out + vector_bytes, is_streamed);
        Out::store(v2, d, out + 2 * vector_bytes, is_streamed);
        Out::store(v3, d, out + 3 * vector_bytes, is_streamed);
      });
    }
  }

  // Returns the number of lanes before the first address for streaming stores, which must be the
  // same for all outputs; n_lanes if there is no such address.
  std::size_t lanes_to_alignment(std::size_t vector_bytes) const {
    constexpr std::size_t kUnitBytes = Op::kUnit * sizeof(typename Out::Memory);
    const auto first = reinterpret_cast<std::uintptr_t>(outputs[0]);
    for (std::size_t i = 1; i < n_outputs; ++i) {
      if ((reinterpret_cast<std::uintptr_t>(outputs[i]) - first) % vector_bytes != 0) {
        return n_lanes;
      }
    }
    const std::size_t bytes = (0 - first) % vector_bytes;
    if (bytes % kUnitBytes != 0) {
      return n_lanes;
    }
    return HWY_MIN(bytes / sizeof(typename Out::Memory), n_lanes);
  }

  HWY_INLINE void run() {
    const hn::ScalableTag<Lane> d;
    const hn::CappedTag<Lane, Op::kUnit> d_unit;
    const std::size_t lanes = hn::Lanes(d);
    std::size_t at = 0;
    if (is_streaming) {
      const std::size_t head = lanes_to_alignment(lanes * sizeof(typename Out::Memory));
      is_streaming = head < n_lanes;
      for (; is_streaming && at < head; at += Op::kUnit) {
        one_vector(d_unit, at, false);
      }
    }
    for (; at + kVectors * lanes <= n_lanes; at += kVectors * lanes) {
      several_vectors(d, at);
    }
    for (; at + lanes <= n_lanes; at += lanes) {
      one_vector(d, at, is_streaming);
    }
    for (; at < n_lanes; at += Op::kUnit) {
      one_vector(d_unit, at, false);
    }
  }
};

template <class In, class Out, class Op, int Inputs, int Outputs>
void sweep(const PassArgs& args) {
  Sweep<In, Out, Op, Inputs, Outputs> sweep;
  for (int i = 0; i < Inputs; ++i) {
    sweep.inputs[i] = static_cast<const std::uint8_t*>(args.inputs[i]);
  }
  sweep.outputs = args.outputs.data();
  for (int i = 0; i < Outputs; ++i) {
    sweep.known_outputs[i] = static_cast<std::uint8_t*>(args.outputs[static_cast<std::size_t>(i)]);
  }
  sweep.n_outputs = args.outputs.size();
  sweep.n_lanes = static_cast<std::size_t>(args.count);
  sweep.divisor = static_cast<typename In::Lane>(args.divisor);
  if constexpr (std::is_same_v<Op, ScaledSum>) {
    sweep.factor = static_cast<typename In::Lane>(args.factor);
  }
  sweep.is_divided = args.divisor != 1;
  sweep.is_streaming = args.is_streaming;
  sweep.run();
}

// Sums usually have a single output, or an output for each rank that contributes an input, so these
// cases have a fixed number of outputs.
template <class In, class Out, class Op, int Inputs>
void run_pass(const PassArgs& args) {
  if constexpr (std::is_same_v<Op, Sum>) {
    if (args.outputs.size() == 1) {
      return sweep<In, Out, Op, Inputs, 1>(args);
    }
    if (args.outputs.size() == Inputs) {
      return sweep<In, Out, Op, Inputs, Inputs>(args);
    }
  }
  sweep<In, Out, Op, Inputs, kAnyNumber>(args);
}

// A single input is copied without Op.
template <class In, class Out, class Op>
Pass pass_of_one_or_two(int n_inputs) {
  switch (n_inputs) {
    case 1:
      return &run_pass<In, Out, Sum, 1>;
    case 2:
      return &run_pass<In, Out, Op, 2>;
    default:
      return nullptr;
  }
}

template <class In, class Out, class Op>
Pass pass_of_up_to_four(int n_inputs) {
  switch (n_inputs) {
    case 3:
      return &run_pass<In, Out, Op, 3>;
    case 4:
      return &run_pass<In, Out, Op, 4>;
    default:
      return pass_of_one_or_two<In, Out, Op>(n_inputs);
  }
}

template <class In, class Out, class Op>
Pass pass_of_up_to_eight(int n_inputs) {
  switch (n_inputs) {
    case 5:
      return &run_pass<In, Out, Op, 5>;
    case 6:
      return &run_pass<In, Out, Op, 6>;
    case 7:
      return &run_pass<In, Out, Op, 7>;
    case 8:
      return &run_pass<In, Out, Op, 8>;
    default:
      return pass_of_up_to_four<In, Out, Op>(n_inputs);
  }
}

template <class In, class Out>
Pass scaled_pass(int n_inputs) {
  switch (n_inputs) {
    case 1:
      return &run_pass<In, Out, ScaledSum, 1>;
    case 2:
      return &run_pass<In, Out, ScaledSum, 2>;
    default:
      return nullptr;
  }
}

template <class In, class Out>
Pass float_pass(LaneOp op, int n_inputs) {
  switch (op) {
    case LaneOp::kSum:
      return pass_of_one_or_two<In, Out, Sum>(n_inputs);
    case LaneOp::kProduct:
      return pass_of_one_or_two<In, Out, Product>(n_inputs);
    case LaneOp::kMin:
      return pass_of_one_or_two<In, Out, Extreme<true>>(n_inputs);
    case LaneOp::kMax:
      return pass_of_one_or_two<In, Out, Extreme<false>>(n_inputs);
    default:
      return nullptr;
  }
}

}  // namespace unisono::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif  // UNISONO_IS_VECTOR_TARGET
#endif  // include guard
