#include "unisono/torch/optim/parameterwise_optimizer.h"

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/base/error.h"
#include "unisono/torch/tensor/named_tensor.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::optim {

using ::torch::optim::OptimizerParamGroup;

std::vector<OptimizerParamGroup> distinct_groups(const std::vector<OptimizerParamGroup>& groups) {
  std::vector<OptimizerParamGroup> distinct = groups;
  std::map<const void*, std::size_t> group_of;
  for (std::size_t i = 0; i < distinct.size(); ++i) {
    distinct[i].params() = distinct_tensors(groups[i].params());
    for (const at::Tensor& parameter : distinct[i].params()) {
      const auto [known, is_new] = group_of.emplace(parameter.unsafeGetTensorImpl(), i);
      if (!is_new) {
        throw Error(ErrorCode::kInvalidArgument,
                    "an optimizer's parameter, " + describe(parameter) + ", is in groups " +
                        std::to_string(known->second) + " and " + std::to_string(i) +
                        "; put it into one, under whichever of its names");
      }
    }
  }
  return distinct;
}

}  // namespace unisono::optim
