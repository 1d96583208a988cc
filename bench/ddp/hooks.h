#pragma once

#include <memory>
#include <string>
#include <vector>

#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"

#include "models.h"

namespace bench {

/// Returns the names of communication hooks; "none" leaves gradients uncompressed.
std::vector<std::string> hook_names();

void register_hook(unisono::DistributedDataParallel<std::shared_ptr<Model>>& model,
                   const std::shared_ptr<unisono::ProcessGroup>& group,
                   const std::string& name);

}  // namespace bench
