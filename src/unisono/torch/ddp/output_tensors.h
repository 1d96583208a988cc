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

/// Appends pointers to the tensors in the result of a forward pass. Supported results: a tensor; an
/// optional, pair, tuple or range (vector, array, map, ...) of results; numbers, text and
/// enumerations, which contain no tensors.
///
/// A user-defined type needs an overload in the namespace of the type:
///
///     void collect_tensors(Detections& value, std::vector<at::Tensor*>& tensors) {
///       tensors.push_back(&value.boxes);
///       tensors.push_back(&value.scores);
///     }
inline void collect_tensors(at::Tensor& value, std::vector<at::Tensor*>& tensors) {
  tensors.push_back(&value);
}

/// Overload for a value of TorchScript: a tensor, or a tuple or list of values. Throws
/// Error(kInvalidArgument) for a dictionary.
void collect_tensors(c10::IValue& value, std::vector<at::Tensor*>& tensors);

namespace ddp {

/// A type with the interface of std::tuple, such as std::pair and std::array.
template <class T>
concept HasTupleSize = requires { std::tuple_size<T>::value; };

/// A type that collect_tensors() passes over: a number, an enumeration or a string.
template <class T>
concept HoldsNoTensor =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_convertible_v<T, std::string>;

/// True for std::optional.
template <class T>
inline constexpr bool kIsOptional = false;

template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

/// Calls collect_tensors() for every type that has an overload or is composed of such types.
template <class T>
void collect_from(T& value, std::vector<at::Tensor*>& tensors) {
  if constexpr (std::is_const_v<T>) {
    // Map entries have constant keys, which contain no tensor that could be changed.
  } else if constexpr (requires { collect_tensors(value, tensors); }) {
    collect_tensors(value, tensors);
  } else if constexpr (HoldsNoTensor<T>) {
    // No tensors to collect.
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
    static_assert(
        sizeof(T) == 0,
        "forward() returns a type whose tensors DistributedDataParallel can't find: define "
        "collect_tensors(T&, std::vector<at::Tensor*>&) in the type's namespace");
  }
}

}  // namespace ddp
}  // namespace unisono
