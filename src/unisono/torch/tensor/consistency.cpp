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

Property property_of(const NamedTensor& named, const std::string& who) {
  const at::Tensor& tensor = named.tensor;
  if (tensor.defined() && (tensor.layout() != at::kStrided || !tensor.device().is_cpu())) {
    throw Error(ErrorCode::kInvalidArgument,
                who + ": tensor '" + named.name + "' is " +
                    (tensor.device().is_cpu() ? "sparse" : "on " + tensor.device().str()) +
                    "; only dense tensors in CPU memory can be compared");
  }
  return {.what = "tensor '" + named.name + "'",
          .value = describe(tensor) + " with hash " + format_hash(hash_tensors({tensor}))};
}

}  // namespace

void check_consistent(ProcessGroup& group,
                      const std::vector<NamedTensor>& tensors,
                      const std::string& who,
                      std::optional<std::chrono::milliseconds> timeout) {
  std::vector<Property> properties;
  properties.reserve(tensors.size());
  for (const NamedTensor& named : tensors) {
    properties.push_back(property_of(named, who));
  }
  check_agreement(group, properties, who + ": the ranks differ", timeout);
}

void check_consistent(ProcessGroup& group,
                      const std::string& what,
                      const std::string& value,
                      const std::string& who,
                      std::optional<std::chrono::milliseconds> timeout) {
  check_agreement(group, {{.what = what, .value = value}}, who + ": the ranks differ", timeout);
}

}  // namespace unisono
