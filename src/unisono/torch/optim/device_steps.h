#pragma once

#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/torch/optim/optimizer_steps.h"

namespace unisono::optim {

// The steps of optimizer_steps.h on tensors of a device, by LibTorch's operators on lists, which
// start a few kernels for many tensors. Each operation rounds as in optimizer_steps.h, so that a
// device whose arithmetic is the CPU's gives equal bits for floats. The exceptions are the norms of
// LAMB and LARS, which are added up in double, in the order of the device, and roots of doubles
// where the device's operator does not round them correctly. The host does not wait, except in the
// first step of a process.
//
// The tensors of a call are on one device and of one type, float or double.

using Tensors = std::vector<at::Tensor>;

/// The tensors that a step of Adam's kind reads and changes, by parameter.
struct AdamTensors {
  Tensors parameters;
  Tensors gradients;
  Tensors exp_avgs;
  Tensors exp_avg_sqs;
};

/// Makes a step of Adadelta on each parameter.
void adadelta_step(const Tensors& parameters,
                   const Tensors& gradients,
                   const Tensors& square_avgs,
                   const Tensors& acc_deltas,
                   const AdadeltaConstants& constants);

/// Makes a step of AdamW on each parameter. `constants` belong to the parameters, and differ in the
/// bias corrections only.
void adamw_step(const AdamTensors& tensors, std::span<const AdamWConstants> constants);

/// Makes a step of LAMB on each parameter. See adamw_step().
void lamb_step(const AdamTensors& tensors, std::span<const AdamWConstants> constants);

/// Makes a step of LARS on each parameter.
void lars_step(const Tensors& parameters,
               const Tensors& gradients,
               const Tensors& momentum_buffers,
               const LarsConstants& constants);

}  // namespace unisono::optim
