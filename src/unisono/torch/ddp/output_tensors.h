#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <ranges>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace c10 {
struct IValue;
}

namespace unisono {

/// Appends pointers to the tensors in a forward pass's result: a tensor; optional, pair, tuple, or
/// range (vector, array, map, ...) of results; numbers, text and enumerations, which hold none.
///
/// A type of your own needs an overload beside it, in its namespace:
///
///     void collect_tensors(Detections& value, std::vector<at::Tensor*>& tensors) {
///       tensors.push_back(&value.boxes);
///       tensors.push_back(&value.scores);
///     }
inline void collect_tensors(at::Tensor& value, std::vector<at::Tensor*>& tensors) {
  tensors.push_back(&value);
}

/// The same for a value of TorchScript: a tensor, or a tuple or list of values. Throws
/// Error(kInvalidArgument) for a dictionary.
void collect_tensors(c10::IValue& value, std::vector<at::Tensor*>& tensors);

namespace ddp {

template <class T>
concept HasTupleSize = requires { std::tuple_size<T>::value; };

template <class T>
concept HoldsNoTensor =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_convertible_v<T, std::string>;

template <class T>
inline constexpr bool kIsOptional = false;

template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

/// collect_tensors() for every type that has one or that is made of such types.
template <class T>
void collect_from(T& value, std::vector<at::Tensor*>& tensors) {
  if constexpr (std::is_const_v<T>) {
    // Pairs of a map have constant keys, which hold nothing that could be changed.
  } else if constexpr (requires { collect_tensors(value, tensors); }) {
    collect_tensors(value, tensors);
  } else if constexpr (HoldsNoTensor<T>) {
    // Nothing to collect.
  } else if constexpr (kIsOptional<T>) {
    if (value) {
      collect_from(*value, tensors);
    }
  } else if constexpr (HasTupleSize<T>) {
    std::apply([&](auto&... parts) { (collect_from(parts, tensors), ...); }, value);
  } else if constexpr (std::ranges::range<T>) {
    for (auto& element : value) {
      collect_from(element, tensors);
    }
  } else {
    static_assert(sizeof(T) == 0,
                  "forward() returns a type that DistributedDataParallel can't look into: define "
                  "collect_tensors(T&, std::vector<at::Tensor*>&) in the type's namespace");
  }
}

}  // namespace ddp
}  // namespace unisono
