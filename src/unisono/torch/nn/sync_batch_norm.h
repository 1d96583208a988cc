#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/options/batchnorm.h>
#include <torch/nn/pimpl.h>

#include "unisono/comm/process_group.h"

namespace unisono::nn {

/// Batch normalization with the mean and variance of all ranks' batches together, for small batches
/// per rank. Replaces torch::nn::BatchNorm1d, 2d and 3d, with the same options and the same names
/// of parameters and buffers.
///
/// In training mode forward and backward are collective operations, even if a rank's batch is
/// empty; batches may differ in size. In evaluation mode, and without a group, the module equals
/// BatchNorm.
///
/// Use a separate group with the same ranks as DistributedDataParallel's group (see new_group()).
/// Ranks must call the operations of a group in the same order, but with find_unused_parameters
/// ranks start to reduce a bucket at different points of a backward pass.
///
/// On a device the statistics stay there; forward in training mode makes the host wait once, for
/// the number of elements.
///
/// Holds the group. Not thread-safe, like torch::nn modules. If backward of a rank throws before
/// the norm's backward, the other ranks wait in the norm until the group's timeout expires.
class SyncBatchNormImpl
    : public torch::nn::NormImplBase<0, SyncBatchNormImpl, torch::nn::BatchNormOptions> {
 public:
  /// Throws Error(kInvalidArgument) if the number of channels is not positive.
  explicit SyncBatchNormImpl(const torch::nn::BatchNormOptions& norm_options,
                             std::shared_ptr<ProcessGroup> group = {});

  /// `input` has its channels in dimension 1.
  ///
  /// Throws Error(kInvalidArgument) for an input of another shape, and in training mode for a
  /// channel with fewer than two elements on all ranks together.
  at::Tensor forward(const at::Tensor& input);

  /// The group for the statistics; null: only the batch of this rank is used.
  [[nodiscard]] const std::shared_ptr<ProcessGroup>& group() const { return group_; }

  /// Sets the group of later passes; null: only the batch of this rank is used.
  void set_group(std::shared_ptr<ProcessGroup> group) { group_ = std::move(group); }

 protected:
  void _check_input_dim(const at::Tensor& input) override;

 private:
  [[nodiscard]] double next_momentum();

  std::shared_ptr<ProcessGroup> group_;
};

TORCH_MODULE(SyncBatchNorm);

/// Makes batch normalization in `module` and all children use the batches of all ranks of the
/// group. Every SyncBatchNorm receives the group, and every BatchNorm1d, 2d and 3d in a
/// torch::nn::Sequential is replaced by a SyncBatchNorm with the same parameters and buffers. The
/// group must be different from DistributedDataParallel's. Returns the number of SyncBatchNorms.
/// Call the function before the module is wrapped and before an optimizer receives the parameters.
///
/// Throws Error(kInvalidArgument), without any change, for a BatchNorm that is a member of a
/// user-defined class, with the member's name: the class must declare the member as SyncBatchNorm.
std::size_t convert_sync_batchnorm(torch::nn::Module& module,
                                   const std::shared_ptr<ProcessGroup>& group);

}  // namespace unisono::nn
