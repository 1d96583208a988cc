#include "unisono/torch/ddp/module_call.h"

#include <c10/util/Type.h>

#include "unisono/base/error.h"

namespace unisono::ddp {

void refuse_empty_module() {
  throw Error(ErrorCode::kInvalidArgument,
              "DistributedDataParallel: the AnyModule is empty; give it a module before it is "
              "wrapped: torch::nn::AnyModule(Net())");
}

// LibTorch has no error type of its own for this mistake, so the function recognizes the message.
// An error from an AnyModule nested in the module, for example in a Sequential, is explained as
// well.
void explain_arguments(ProcessGroup& group, const c10::Error& error) {
  const std::string problem = error.what_without_backtrace();
  if (problem.find("Expected argument #") != std::string::npos ||
      problem.find("'s forward() method expects ") != std::string::npos) {
    throw group.refuse("DistributedDataParallel.forward()",
                       problem +
                           "; an AnyModule converts nothing: pass each argument in the type that "
                           "the module's forward() declares, such as 2.0F for a float");
  }
}

void refuse_result(ProcessGroup& group,
                   const std::type_info& wanted,
                   const std::type_info& actual) {
  throw group.refuse("DistributedDataParallel.forward()",
                     "the module in the AnyModule returns " + c10::demangle(actual.name()) +
                         ", not " + c10::demangle(wanted.name()) +
                         "; name the type: model.forward<" + c10::demangle(actual.name()) +
                         ">(...)");
}

}  // namespace unisono::ddp
