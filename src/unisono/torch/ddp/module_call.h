#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <ranges>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include "unisono/comm/process_group.h"

namespace c10 {
struct IValue;
}

namespace torch::nn {
class AnyModule;
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

namespace unisono::ddp {

/// True for torch::nn::AnyModule.
template <class Module>
inline constexpr bool kIsAnyModule =
    std::is_same_v<std::remove_const_t<Module>, torch::nn::AnyModule>;

/// Throws the error of module_of() for an AnyModule without a module.
[[noreturn]] void refuse_empty_module();

/// Returns the module behind a module holder, a pointer or a torch::nn::AnyModule. Throws
/// Error(kInvalidArgument) for an AnyModule without a module.
template <class Module>
auto& module_of(Module& module) {
  if constexpr (kIsAnyModule<Module>) {
    if (module.is_empty()) {
      refuse_empty_module();
    }
    return *module.ptr();
  } else {
    return *module;
  }
}

/// Throws RefusedCall if `error` reports arguments that the module in a torch::nn::AnyModule does
/// not accept. Returns for any other error.
void explain_arguments(ProcessGroup& group, const c10::Error& error);

/// Throws the RefusedCall of a module that returns `actual` instead of `wanted`.
[[noreturn]] void refuse_result(ProcessGroup& group,
                                const std::type_info& wanted,
                                const std::type_info& actual);

/// Calls forward() of the module in a torch::nn::AnyModule. Throws RefusedCall if the module takes
/// other arguments or returns a type other than `Result`.
template <class Result, class AnyModule, class... Args>
Result forward_of(AnyModule& module, ProcessGroup& group, Args&&... args) {
  auto value = [&] {
    try {
      return module.any_forward(std::forward<Args>(args)...);
    } catch (const c10::Error& error) {
      explain_arguments(group, error);
      throw;
    }
  }();
  Result* const result = value.template try_get<Result>();
  if (result == nullptr) {
    refuse_result(group, typeid(Result), value.type_info());
  }
  return std::move(*result);
}

}  // namespace unisono::ddp
