#include "unisono/torch/ddp/wide_types.h"

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/base/error.h"
#include "unisono/torch/tensor/named_tensor.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::ddp {

void check_wide_types(const std::vector<NamedTensor>& parameters,
                      const std::string& option,
                      const std::string& reason) {
  for (const NamedTensor& parameter : parameters) {
    const at::ScalarType type = parameter.tensor.scalar_type();
    if (type != at::kFloat && type != at::kDouble) {
      throw Error(ErrorCode::kInvalidArgument,
                  "DistributedDataParallel: parameter '" + parameter.name + "' is " +
                      describe(parameter.tensor) + "; with " + option +
                      " parameters must be f32 or f64, " + reason +
                      "; compute in 16 bits under Autocast");
    }
  }
}

}  // namespace unisono::ddp
