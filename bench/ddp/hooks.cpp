#include "hooks.h"

#include <memory>
#include <string>
#include <vector>

#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/comm_hooks/comm_hooks.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"

#include "models.h"

namespace bench {

std::vector<std::string> hook_names() {
  return {"none", "bf16", "int8", "fp8", "power_sgd"};
}

void register_hook(unisono::DistributedDataParallel<std::shared_ptr<Model>>& model,
                   const std::shared_ptr<unisono::ProcessGroup>& group,
                   const std::string& name) {
  if (name == "bf16") {
    model.register_comm_hook(group, unisono::bf16_compress_hook);
  } else if (name == "int8" || name == "fp8") {
    const auto type =
        name == "int8" ? unisono::QuantizedType::kInt8 : unisono::QuantizedType::kFloat8;
    model.register_comm_hook(std::make_shared<unisono::QuantizeState>(group, type),
                             unisono::quantize_hook);
  } else if (name == "power_sgd") {
    // Compresses from the third pass on, before steps are counted.
    model.register_comm_hook(std::make_shared<unisono::PowerSgdState>(
                                 group, unisono::PowerSgdOptions{.start_power_sgd_iter = 2}),
                             unisono::power_sgd_hook);
  }
}

}  // namespace bench
