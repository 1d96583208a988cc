#pragma once

/// All of Unisono for training with LibTorch, and unisono/unisono.h. Takes the compiler as long as
/// torch/torch.h: a file that needs little of it includes just that. Link unisono::torch.

#include "unisono/torch/amp/autocast.h"                     // IWYU pragma: export
#include "unisono/torch/amp/grad_scaler.h"                  // IWYU pragma: export
#include "unisono/torch/checkpoint.h"                       // IWYU pragma: export
#include "unisono/torch/ddp/average_gradients.h"            // IWYU pragma: export
#include "unisono/torch/ddp/comm_hook.h"                    // IWYU pragma: export
#include "unisono/torch/ddp/comm_hooks/comm_hooks.h"        // IWYU pragma: export
#include "unisono/torch/ddp/comm_hooks/post_local_sgd.h"    // IWYU pragma: export
#include "unisono/torch/ddp/comm_hooks/power_sgd.h"         // IWYU pragma: export
#include "unisono/torch/ddp/comm_hooks/quantize.h"          // IWYU pragma: export
#include "unisono/torch/ddp/comm_hooks/top_k.h"             // IWYU pragma: export
#include "unisono/torch/ddp/distributed_data_parallel.h"    // IWYU pragma: export
#include "unisono/torch/ddp/join.h"                         // IWYU pragma: export
#include "unisono/torch/ddp/non_finite.h"                   // IWYU pragma: export
#include "unisono/torch/ddp/parameter_drift.h"              // IWYU pragma: export
#include "unisono/torch/ddp/script_module.h"                // IWYU pragma: export
#include "unisono/torch/nn/activation_checkpoint.h"         // IWYU pragma: export
#include "unisono/torch/nn/data_parallel.h"                 // IWYU pragma: export
#include "unisono/torch/nn/sync_batch_norm.h"               // IWYU pragma: export
#include "unisono/torch/optim/adadelta.h"                   // IWYU pragma: export
#include "unisono/torch/optim/adamw.h"                      // IWYU pragma: export
#include "unisono/torch/optim/lamb.h"                       // IWYU pragma: export
#include "unisono/torch/optim/lars.h"                       // IWYU pragma: export
#include "unisono/torch/optim/lr_scheduler.h"               // IWYU pragma: export
#include "unisono/torch/optim/overlapped_steps.h"           // IWYU pragma: export
#include "unisono/torch/optim/reduce_on_plateau.h"          // IWYU pragma: export
#include "unisono/torch/optim/schedule.h"                   // IWYU pragma: export
#include "unisono/torch/optim/weight_average.h"             // IWYU pragma: export
#include "unisono/torch/optim/zero_redundancy_optimizer.h"  // IWYU pragma: export
#include "unisono/torch/parallel/mesh/mesh.h"               // IWYU pragma: export
#include "unisono/torch/parallel/pipeline/pipeline.h"       // IWYU pragma: export
#include "unisono/torch/parallel/tensor/attention.h"        // IWYU pragma: export
#include "unisono/torch/parallel/tensor/cross_entropy.h"    // IWYU pragma: export
#include "unisono/torch/parallel/tensor/embedding.h"        // IWYU pragma: export
#include "unisono/torch/parallel/tensor/encoder_layer.h"    // IWYU pragma: export
#include "unisono/torch/parallel/tensor/gradients.h"        // IWYU pragma: export
#include "unisono/torch/parallel/tensor/layer_norm.h"       // IWYU pragma: export
#include "unisono/torch/parallel/tensor/linear.h"           // IWYU pragma: export
#include "unisono/torch/parallel/tensor/state.h"            // IWYU pragma: export
#include "unisono/torch/parallel/thread_ranks.h"            // IWYU pragma: export
#include "unisono/torch/tensor/batch_tensors.h"             // IWYU pragma: export
#include "unisono/torch/tensor/collectives.h"               // IWYU pragma: export
#include "unisono/torch/tensor/consistency.h"               // IWYU pragma: export
#include "unisono/torch/tensor/hash.h"                      // IWYU pragma: export
#include "unisono/torch/tensor/parameter_hash.h"            // IWYU pragma: export
#include "unisono/torch/tensor/tensor.h"                    // IWYU pragma: export
#include "unisono/unisono.h"                                // IWYU pragma: export
