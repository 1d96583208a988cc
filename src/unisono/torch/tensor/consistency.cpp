#include "unisono/torch/tensor/consistency.h"

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/tensor/agreement.h"
#include "unisono/torch/tensor/named_tensor.h"
#include "unisono/torch/tensor/parameter_hash.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono {
namespace {

// Why a tensor can't be compared; empty where it can.
std::string problem_of(const at::Tensor& tensor) {
  if (!tensor.defined() || (tensor.layout() == at::kStrided && tensor.device().is_cpu())) {
    return {};
  }
  return (tensor.device().is_cpu() ? "sparse" : "on " + tensor.device().str()) +
         "; only dense tensors in CPU memory can be compared";
}

Property property_of(const NamedTensor& named) {
  const std::string problem = problem_of(named.tensor);
  return {.what = "tensor '" + named.name + "'",
          .value = problem.empty() ? describe(named.tensor) + " with hash " +
                                         format_hash(hash_tensors({named.tensor}))
                                   : problem};
}

}  // namespace

void check_consistent(ProcessGroup& group,
                      const std::vector<NamedTensor>& tensors,
                      const std::string& who,
                      std::optional<std::chrono::milliseconds> timeout) {
  std::vector<Property> properties;
  properties.reserve(tensors.size());
  for (const NamedTensor& named : tensors) {
    properties.push_back(property_of(named));
  }
  // Also with what can't be compared: the others would wait.
  check_agreement(group, properties, who + ": the ranks differ", timeout);
  for (const NamedTensor& named : tensors) {
    if (const std::string problem = problem_of(named.tensor); !problem.empty()) {
      throw Error(ErrorCode::kInvalidArgument, who + ": tensor '" + named.name + "' is " + problem);
    }
  }
}

void check_consistent(ProcessGroup& group,
                      const std::string& what,
                      const std::string& value,
                      const std::string& who,
                      std::optional<std::chrono::milliseconds> timeout) {
  check_agreement(group, {{.what = what, .value = value}}, who + ": the ranks differ", timeout);
}

}  // namespace unisono
