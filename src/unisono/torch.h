#pragma once

/// The door for training with LibTorch: tensors, DistributedDataParallel, optimizers, parallel
/// layers, pipelines, and all of unisono/unisono.h. Link unisono::torch.
///
/// Cost: torch/torch.h and about 3 s more for the compiler.

#include "unisono/torch/amp/amp.h"                          // IWYU pragma: export
#include "unisono/torch/checkpoint/checkpoint.h"            // IWYU pragma: export
#include "unisono/torch/ddp/average_gradients.h"            // IWYU pragma: export
#include "unisono/torch/ddp/comm_hook.h"                    // IWYU pragma: export
#include "unisono/torch/ddp/comm_hooks/comm_hooks.h"        // IWYU pragma: export
#include "unisono/torch/ddp/distributed_data_parallel.h"    // IWYU pragma: export
#include "unisono/torch/ddp/options.h"                      // IWYU pragma: export
#include "unisono/torch/ddp/script_module.h"                // IWYU pragma: export
#include "unisono/torch/device/local_device.h"              // IWYU pragma: export
#include "unisono/torch/nn/activation_checkpoint.h"         // IWYU pragma: export
#include "unisono/torch/nn/data_parallel.h"                 // IWYU pragma: export
#include "unisono/torch/nn/sync_batch_norm.h"               // IWYU pragma: export
#include "unisono/torch/optim/lr_scheduler.h"               // IWYU pragma: export
#include "unisono/torch/optim/optimizers.h"                 // IWYU pragma: export
#include "unisono/torch/optim/weight_average.h"             // IWYU pragma: export
#include "unisono/torch/optim/zero_redundancy_optimizer.h"  // IWYU pragma: export
#include "unisono/torch/parallel/mesh.h"                    // IWYU pragma: export
#include "unisono/torch/parallel/pipeline/pipeline.h"       // IWYU pragma: export
#include "unisono/torch/parallel/tensor/divided_model.h"    // IWYU pragma: export
#include "unisono/torch/parallel/tensor/functions.h"        // IWYU pragma: export
#include "unisono/torch/parallel/tensor/layers.h"           // IWYU pragma: export
#include "unisono/torch/tensor/hash.h"                      // IWYU pragma: export
#include "unisono/torch/tensor/tensor.h"                    // IWYU pragma: export
#include "unisono/unisono.h"                                // IWYU pragma: export
