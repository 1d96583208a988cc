#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/reduction.h"
#include "unisono/kernels/float_mode.h"
#include "unisono/kernels/pass.h"
#include "unisono/kernels/reduce.h"
#include "unisono/kernels/small_floats.h"

namespace unisono::kernels {
namespace {

// An element type: its representation in memory, the type in which elements are combined, and the
// conversions between both.
template <class T>
struct Same {
  using Memory = T;
  using Value = T;

  static Value widen(Memory element) { return element; }

  static Memory narrow(Value value) { return value; }
};

template <float (*widen_half)(std::uint16_t), std::uint16_t (*narrow_half)(float)>
struct Half {
  using Memory = std::uint16_t;
  using Value = float;

  static Value widen(Memory element) { return widen_half(element); }

  static Memory narrow(Value value) { return narrow_half(value); }
};

struct Truth {
  using Memory = std::uint8_t;
  using Value = bool;

  static Value widen(Memory element) { return element != 0; }

  static Memory narrow(Value value) { return value ? 1 : 0; }
};

// Converts a 64-bit unsigned result, for which overflow is defined, to the element type.
template <class T>
T wrap(std::uint64_t value) {
  return static_cast<T>(value);
}

template <class T>
T sum(T lhs, T rhs) {
  if constexpr (std::is_same_v<T, bool>) {
    return lhs || rhs;
  } else if constexpr (std::is_integral_v<T>) {
    return wrap<T>(static_cast<std::uint64_t>(lhs) + static_cast<std::uint64_t>(rhs));
  } else {
    return lhs + rhs;
  }
}

template <class T>
T product(T lhs, T rhs) {
  if constexpr (std::is_same_v<T, bool>) {
    return lhs && rhs;
  } else if constexpr (std::is_integral_v<T>) {
    return wrap<T>(static_cast<std::uint64_t>(lhs) * static_cast<std::uint64_t>(rhs));
  } else {
    return lhs * rhs;
  }
}

// The textbook formula. std::complex would correct infinities.
template <class T>
std::complex<T> product(std::complex<T> lhs, std::complex<T> rhs) {
  return {lhs.real() * rhs.real() - lhs.imag() * rhs.imag(),
          lhs.real() * rhs.imag() + lhs.imag() * rhs.real()};
}

template <class T>
T minimum(T lhs, T rhs) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(lhs) || std::isnan(rhs)) {
      return std::numeric_limits<T>::quiet_NaN();
    }
    if (lhs == rhs) {
      return std::signbit(lhs) ? lhs : rhs;
    }
  }
  return rhs < lhs ? rhs : lhs;
}

template <class T>
T maximum(T lhs, T rhs) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(lhs) || std::isnan(rhs)) {
      return std::numeric_limits<T>::quiet_NaN();
    }
    if (lhs == rhs) {
      return std::signbit(lhs) ? rhs : lhs;
    }
  }
  return lhs < rhs ? rhs : lhs;
}

template <class T>
T bits(ReduceKind kind, T lhs, T rhs) {
  switch (kind) {
    case ReduceKind::kBand:
      return static_cast<T>(lhs & rhs);
    case ReduceKind::kBor:
      return static_cast<T>(lhs | rhs);
    default:
      return static_cast<T>(lhs ^ rhs);
  }
}

template <class T>
struct IsComplex : std::false_type {};

template <class T>
struct IsComplex<std::complex<T>> : std::true_type {};

template <class T>
T combine(ReduceKind kind, T lhs, T rhs) {
  if constexpr (std::is_integral_v<T>) {
    if (kind == ReduceKind::kBand || kind == ReduceKind::kBor || kind == ReduceKind::kBxor) {
      return bits(kind, lhs, rhs);
    }
  }
  if constexpr (!IsComplex<T>::value) {
    if (kind == ReduceKind::kMin) {
      return minimum(lhs, rhs);
    }
    if (kind == ReduceKind::kMax) {
      return maximum(lhs, rhs);
    }
  }
  return kind == ReduceKind::kProduct ? product(lhs, rhs) : sum(lhs, rhs);
}

template <class T>
T divide(T value, int divisor) {
  if constexpr (std::is_floating_point_v<T>) {
    return value / static_cast<T>(divisor);
  } else if constexpr (IsComplex<T>::value) {
    return {divide(value.real(), divisor), divide(value.imag(), divisor)};
  } else {
    return value;
  }
}

// Returns the rounded product. A separate function, so that the product is not fused with an
// addition.
template <class T>
T scale(T value, double factor) {
  if constexpr (std::is_floating_point_v<T>) {
    return value * static_cast<T>(factor);
  } else if constexpr (IsComplex<T>::value) {
    return {scale(value.real(), factor), scale(value.imag(), factor)};
  } else {
    return value;
  }
}

template <class Memory>
Memory load(const void* from, std::size_t index) {
  Memory element;
  std::memcpy(
      &element, static_cast<const std::byte*>(from) + index * sizeof(Memory), sizeof(Memory));
  return element;
}

template <class Memory>
void store(void* to, std::size_t index, Memory element) {
  std::memcpy(static_cast<std::byte*>(to) + index * sizeof(Memory), &element, sizeof(Memory));
}

template <class Element>
void store_result(const ReduceTask& task, std::size_t index, typename Element::Value value) {
  if (task.kind == ReduceKind::kAvg && !task.output_is_partial) {
    value = divide(value, task.divisor);
  }
  for (void* const output : task.outputs) {
    // A partial bool is a byte, like any bool.
    if constexpr (!std::is_same_v<typename Element::Value, bool>) {
      if (task.output_is_partial) {
        store(output, index, value);
        continue;
      }
    }
    store(output, index, Element::narrow(value));
  }
}

template <class Element>
void run(const ReduceTask& task, std::size_t count) {
  using Memory = typename Element::Memory;
  using Value = typename Element::Value;
  // char instead of bool, because std::vector<bool> has no addressable elements.
  std::vector<std::conditional_t<std::is_same_v<Value, bool>, char, Value>> values;
  for (std::size_t i = 0; i < count; ++i) {
    values.clear();
    for (const ReduceInput& input : task.inputs) {
      const bool is_value = input.is_partial && !std::is_same_v<Value, bool>;
      const Value value =
          is_value ? load<Value>(input.data, i) : Element::widen(load<Memory>(input.data, i));
      const bool is_scaled = task.kind == ReduceKind::kPremulSum && !input.is_partial;
      values.push_back(is_scaled ? scale(value, task.factor) : value);
    }
    for (const ReduceStep step : task.steps) {
      const Value lhs = values[static_cast<std::size_t>(step.lhs)];
      const Value rhs = values[static_cast<std::size_t>(step.rhs)];
      values.push_back(combine(task.kind, lhs, rhs));
    }
    store_result<Element>(task, i, values.back());
  }
}

// Combines elements of any dtype as bytes.
void run_user(const ReduceTask& task, std::size_t count) {
  struct alignas(16) Element {
    std::byte bytes[16];
  };

  const std::size_t size = size_of(task.dtype);
  std::vector<Element> values;
  for (std::size_t i = 0; i < count; ++i) {
    values.clear();
    for (const ReduceInput& input : task.inputs) {
      std::memcpy(
          &values.emplace_back(), static_cast<const std::byte*>(input.data) + i * size, size);
    }
    for (const ReduceStep step : task.steps) {
      const Element lhs = values[static_cast<std::size_t>(step.lhs)];
      const Element rhs = values[static_cast<std::size_t>(step.rhs)];
      call_user(*task.user, &lhs, &rhs, &values.emplace_back(), 1);
    }
    for (void* const output : task.outputs) {
      std::memcpy(static_cast<std::byte*>(output) + i * size, &values.back(), size);
    }
  }
}

void dispatch(const ReduceTask& task, std::size_t count) {
  switch (task.dtype) {
    case DType::kInt8:
      return run<Same<std::int8_t>>(task, count);
    case DType::kUInt8:
      return run<Same<std::uint8_t>>(task, count);
    case DType::kInt16:
      return run<Same<std::int16_t>>(task, count);
    case DType::kUInt16:
      return run<Same<std::uint16_t>>(task, count);
    case DType::kInt32:
      return run<Same<std::int32_t>>(task, count);
    case DType::kUInt32:
      return run<Same<std::uint32_t>>(task, count);
    case DType::kInt64:
      return run<Same<std::int64_t>>(task, count);
    case DType::kUInt64:
      return run<Same<std::uint64_t>>(task, count);
    case DType::kFloat16:
      return run<Half<float_from_f16, f16_from_float>>(task, count);
    case DType::kBFloat16:
      return run<Half<float_from_bf16, bf16_from_float>>(task, count);
    case DType::kFloat32:
      return run<Same<float>>(task, count);
    case DType::kFloat64:
      return run<Same<double>>(task, count);
    case DType::kComplex64:
      return run<Same<std::complex<float>>>(task, count);
    case DType::kComplex128:
      return run<Same<std::complex<double>>>(task, count);
    case DType::kBool:
      return run<Truth>(task, count);
  }
}

}  // namespace

void reduce_reference(const ReduceTask& task, std::int64_t count) {
  check_task(task, count);
  const FloatMode mode;
  if (task.kind == ReduceKind::kUser) {
    run_user(task, static_cast<std::size_t>(count));
  } else {
    dispatch(task, static_cast<std::size_t>(count));
  }
}

}  // namespace unisono::kernels
