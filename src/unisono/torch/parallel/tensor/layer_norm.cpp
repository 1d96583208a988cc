#include "unisono/torch/parallel/tensor/layer_norm.h"

#include <memory>
#include <string>
#include <utility>

#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/parallel/tensor/placement.h"

namespace unisono::parallel {

ParallelLayerNormImpl::ParallelLayerNormImpl(const ParallelLayerNormOptions& to_use,
                                             std::shared_ptr<ProcessGroup> group)
    : ParallelLayer("ParallelLayerNorm", std::move(group)), options(to_use) {
  if (options.n_features <= 0) {
    throw Error(ErrorCode::kInvalidArgument,
                layer() + ": there are " + std::to_string(options.n_features) +
                    " features; there must be one at least");
  }
  weight = register_parameter("weight", at::ones({options.n_features}));
  bias = register_parameter("bias", at::zeros({options.n_features}));
  for (const char* const name : {"weight", "bias"}) {
    place(name, {.has_partial_gradient = options.sequence_parallel});
  }
}

at::Tensor ParallelLayerNormImpl::forward(const at::Tensor& input) {
  check_last_dimension(input, options.n_features);
  return at::layer_norm(input, {options.n_features}, weight, bias, options.eps);
}

}  // namespace unisono::parallel
