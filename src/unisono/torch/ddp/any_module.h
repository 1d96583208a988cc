#pragma once

#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include <c10/util/Exception.h>

#include "unisono/comm/process_group.h"

namespace torch::nn {
class AnyModule;
}

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
