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

template <class Module>
inline constexpr bool kIsAnyModule =
    std::is_same_v<std::remove_const_t<Module>, torch::nn::AnyModule>;

[[noreturn]] void refuse_empty_module();

/// What a holder, a pointer or a torch::nn::AnyModule leads to. Throws Error(kInvalidArgument) for
/// an AnyModule without a module.
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

/// Throws RefusedCall where the error is that of arguments which the module in a
/// torch::nn::AnyModule does not take.
void explain_arguments(ProcessGroup& group, const c10::Error& error);

[[noreturn]] void refuse_result(ProcessGroup& group,
                                const std::type_info& wanted,
                                const std::type_info& actual);

/// forward() of the module in a torch::nn::AnyModule. Throws RefusedCall where the module takes
/// other arguments, or returns another type.
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
