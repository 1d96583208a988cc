#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"

namespace unisono::nn {

/// Of each channel, over the batches of all ranks, in double precision.
struct BatchStatistics {
  at::Tensor mean;
  at::Tensor squared_deviations;  ///< Their sum: the variance is that over `count`.
  double count;                   ///< Of elements in a channel.
};

/// A collective operation. `input` has its channels in dimension 1; its batch may be empty.
[[nodiscard]] BatchStatistics combine_statistics(ProcessGroup& group, const at::Tensor& input);

/// (input - mean) / sqrt(variance + eps) * weight + bias, with the gradient that passes through the
/// statistics: backward is a collective operation, too. Weight and bias may be undefined. Returns
/// input's type; 16 bits are computed in 32.
[[nodiscard]] at::Tensor normalize(const std::shared_ptr<ProcessGroup>& group,
                                   const at::Tensor& input,
                                   const at::Tensor& weight,
                                   const at::Tensor& bias,
                                   const BatchStatistics& statistics,
                                   double eps);

}  // namespace unisono::nn
