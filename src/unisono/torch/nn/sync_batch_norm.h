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

/// Batch normalization whose mean and variance are those of all ranks' batches together: for
/// batches that are small on each rank. Takes the place of torch::nn::BatchNorm1d, 2d and 3d, with
/// their options and the same names of parameters and buffers.
///
/// In training mode forward and backward are collective operations, also where a rank's batch is
/// empty; batches may differ in size. In evaluation mode, and without a group, it is BatchNorm.
///
/// Give it a group of its own, of the same ranks as DistributedDataParallel's (see new_group()):
/// in one group ranks call operations in the same order, but with find_unused_parameters they start
/// to reduce a bucket at different places of a backward pass. If one rank's backward throws before
/// it gets to the norm, the other ranks wait there in vain, until the group's timeout ends it.
class SyncBatchNormImpl
    : public torch::nn::NormImplBase<0, SyncBatchNormImpl, torch::nn::BatchNormOptions> {
 public:
  /// Throws Error(kInvalidArgument) for options of no channels.
  explicit SyncBatchNormImpl(const torch::nn::BatchNormOptions& norm_options,
                             std::shared_ptr<ProcessGroup> group = {});

  /// `input` has its channels in dimension 1.
  ///
  /// Throws Error(kInvalidArgument) where it does not fit, and in training mode for a channel of
  /// less than two elements on all ranks together.
  at::Tensor forward(const at::Tensor& input);

  /// The group whose ranks' batches count together; null for this rank's alone.
  [[nodiscard]] const std::shared_ptr<ProcessGroup>& group() const { return group_; }

  void set_group(std::shared_ptr<ProcessGroup> group) { group_ = std::move(group); }

 protected:
  void _check_input_dim(const at::Tensor& input) override;

 private:
  [[nodiscard]] double next_momentum();

  std::shared_ptr<ProcessGroup> group_;
};

TORCH_MODULE(SyncBatchNorm);

/// Makes batch normalization in `module`, and in what it consists of, count the batches of all the
/// group's ranks: every SyncBatchNorm gets the group, not DistributedDataParallel's, and every
/// BatchNorm1d, 2d and 3d of a torch::nn::Sequential is replaced by a SyncBatchNorm with its
/// parameters and buffers. Returns how many there are. To be called before the module is wrapped
/// and before an optimizer gets its parameters.
///
/// Throws Error(kInvalidArgument), with its name, for a BatchNorm that is a member of a class of
/// the caller's: a C++ class must declare it as SyncBatchNorm itself. Nothing is changed then.
std::size_t convert_sync_batchnorm(torch::nn::Module& module,
                                   const std::shared_ptr<ProcessGroup>& group);

}  // namespace unisono::nn
