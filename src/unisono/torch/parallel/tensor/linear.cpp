#include "unisono/torch/parallel/tensor/linear.h"

#include <memory>
#include <string>
#include <utility>

#include <ATen/ops/linear.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/parallel/tensor/initial_values.h"
#include "unisono/torch/parallel/tensor/placement.h"
#include "unisono/torch/parallel/tensor/regions.h"

namespace unisono::parallel {
namespace {

void check_positive(const std::string& layer, const char* what, std::int64_t size) {
  if (size <= 0) {
    throw Error(ErrorCode::kInvalidArgument,
                layer + ": there are " + std::to_string(size) + " " + what +
                    "; there must be one at least");
  }
}

}  // namespace

ColumnParallelLinearImpl::ColumnParallelLinearImpl(const ColumnParallelLinearOptions& to_use,
                                                   std::shared_ptr<ProcessGroup> group,
                                                   const at::Generator& generator)
    : ParallelLayer("ColumnParallelLinear", std::move(group)), options(to_use) {
  check_positive(layer(), "input features", options.in_features);
  (void)share_of("output features", options.out_features);
  const Split rows{.dim = 0};
  const auto part = [&](at::IntArrayRef whole, double bound) {
    return part_of(draw_uniform(whole, bound, generator),
                   rows,
                   this->group()->rank(),
                   this->group()->world_size());
  };
  weight = register_parameter(
      "weight",
      part({options.out_features, options.in_features}, linear_weight_bound(options.in_features)));
  place("weight", {.split = rows});
  if (options.bias) {
    bias = register_parameter("bias",
                              part({options.out_features}, linear_bias_bound(options.in_features)));
    place("bias", {.split = rows});
  }
}

at::Tensor ColumnParallelLinearImpl::forward(const at::Tensor& input) {
  check_last_dimension(input, options.in_features);
  const at::Tensor all = options.sequence_parallel ? gather_to_region(input, kSequenceDim, group())
                                                   : copy_to_region(input, group());
  const at::Tensor output = at::linear(all, weight, bias);
  return options.gather_output ? gather_from_region(output, -1, group()) : output;
}

RowParallelLinearImpl::RowParallelLinearImpl(const RowParallelLinearOptions& to_use,
                                             std::shared_ptr<ProcessGroup> group,
                                             const at::Generator& generator)
    : ParallelLayer("RowParallelLinear", std::move(group)), options(to_use) {
  check_positive(layer(), "output features", options.out_features);
  (void)share_of("input features", options.in_features);
  const Split columns{.dim = 1};
  weight = register_parameter("weight",
                              part_of(draw_uniform({options.out_features, options.in_features},
                                                   linear_weight_bound(options.in_features),
                                                   generator),
                                      columns,
                                      this->group()->rank(),
                                      this->group()->world_size()));
  place("weight", {.split = columns});
  if (options.bias) {
    bias = register_parameter(
        "bias",
        draw_uniform({options.out_features}, linear_bias_bound(options.in_features), generator));
    place("bias", {.has_partial_gradient = options.sequence_parallel});
  }
}

at::Tensor RowParallelLinearImpl::forward(const at::Tensor& input) {
  check_last_dimension(input, options.input_is_split ? weight.size(1) : options.in_features);
  const at::Tensor mine = options.input_is_split ? input : scatter_to_region(input, -1, group());
  const at::Tensor terms = at::linear(mine, weight);
  const at::Tensor output = options.sequence_parallel
                                ? reduce_scatter_from_region(terms, kSequenceDim, group())
                                : reduce_from_region(terms, group());
  return bias.defined() ? output + bias : output;
}

}  // namespace unisono::parallel
