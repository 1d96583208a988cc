#include "unisono/torch/nn/batch_statistics.h"

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/tensor/collectives.h"
#include "unisono/torch/tensor/saved_group.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::nn {
namespace {

namespace autograd = ::torch::autograd;

// All dimensions but the channels'.
std::vector<std::int64_t> batch_dimensions(const at::Tensor& tensor) {
  std::vector<std::int64_t> dimensions;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    if (i != 1) {
      dimensions.push_back(i);
    }
  }
  return dimensions;
}

// A value for each channel, to be broadcast over `like`.
at::Tensor per_channel(const at::Tensor& values, const at::Tensor& like) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(like.dim()), 1);
  sizes[1] = values.numel();
  return values.to(like.scalar_type()).view(sizes);
}

at::Tensor sum_per_channel(const at::Tensor& tensor) {
  return tensor.sum(batch_dimensions(tensor), /*keepdim=*/false, at::kDouble);
}

// 16 bits are too few to compute with: the mean, rounded to them, may be off by a good part of the
// deviation.
at::Tensor for_computing(const at::Tensor& tensor) {
  return tensor.element_size() < 4 ? tensor.to(at::kFloat) : tensor;
}

struct Normalize : autograd::Function<Normalize> {
  static at::Tensor forward(autograd::AutogradContext* context,
                            const at::Tensor& input,
                            const at::Tensor& weight,
                            const at::Tensor& bias,
                            const at::Tensor& mean,
                            const at::Tensor& inverse_deviation,
                            double count,
                            const c10::intrusive_ptr<SavedGroup>& group) {
    const at::Tensor values = for_computing(input);
    const at::Tensor normalized =
        (values.sub(per_channel(mean, values))).mul_(per_channel(inverse_deviation, values));
    context->save_for_backward({normalized, weight, inverse_deviation});
    context->saved_data["count"] = count;
    context->saved_data["group"] = c10::IValue::make_capsule(group);
    return normalized.mul(per_channel(weight, values))
        .add_(per_channel(bias, values))
        .to(input.scalar_type());
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const autograd::variable_list saved = context->get_saved_variables();
    const at::Tensor& normalized = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor gradient = for_computing(gradients[0]);
    const auto group =
        c10::static_intrusive_pointer_cast<SavedGroup>(context->saved_data["group"].toCapsule());
    const at::Tensor of_bias = sum_per_channel(gradient);
    const at::Tensor of_weight = sum_per_channel(gradient * normalized);
    // The statistics depend on every rank's input.
    const at::Tensor sums = at::cat({of_bias, of_weight});
    all_reduce(*group->group, sums, {.label = "gradient of batch statistics"});
    sums.div_(context->saved_data["count"].toDouble());
    const std::int64_t n_channels = of_bias.numel();
    const at::Tensor through_mean = per_channel(sums.narrow(0, 0, n_channels), gradient);
    const at::Tensor through_variance =
        per_channel(sums.narrow(0, n_channels, n_channels), gradient).mul(normalized);
    const at::Tensor factor = saved[2].mul(weight.to(at::kDouble));
    const at::Tensor of_input =
        gradient.sub(through_mean).sub_(through_variance).mul_(per_channel(factor, gradient));
    const auto type = weight.scalar_type();
    return {of_input.to(gradients[0].scalar_type()),
            of_weight.to(type),
            of_bias.to(type),
            {},
            {},
            {},
            {}};
  }
};

}  // namespace

BatchStatistics combine_statistics(ProcessGroup& group, const at::Tensor& input) {
  const c10::NoGradGuard no_grad;
  const std::int64_t n_channels = input.size(1);
  const std::int64_t n_mine = n_channels == 0 ? 0 : input.numel() / n_channels;
  const at::Tensor values = input.detach().to(at::kDouble);
  const at::Tensor mean = sum_per_channel(values).div_(n_mine == 0 ? 1 : n_mine);
  const at::Tensor deviations = values.sub(per_channel(mean, values));
  const at::Tensor mine = at::cat({mean,
                                   sum_per_channel(deviations.square()),
                                   at::full({1}, static_cast<double>(n_mine), at::kDouble)});
  const at::Tensor all = at::empty({group.world_size(), mine.numel()}, at::kDouble);
  all_gather(group, mine, all, {.label = "batch statistics"});

  const at::Tensor means = all.narrow(1, 0, n_channels);
  const at::Tensor counts = all.narrow(1, 2 * n_channels, 1);
  const double count = counts.sum().item<double>();
  const at::Tensor joint_mean = (means * counts).sum(0).div_(count);
  const at::Tensor squared_deviations = all.narrow(1, n_channels, n_channels).sum(0) +
                                        (means.sub(joint_mean).square_().mul_(counts)).sum(0);
  return {.mean = joint_mean, .squared_deviations = squared_deviations, .count = count};
}

at::Tensor normalize(const std::shared_ptr<ProcessGroup>& group,
                     const at::Tensor& input,
                     const at::Tensor& weight,
                     const at::Tensor& bias,
                     const BatchStatistics& statistics,
                     double eps) {
  const at::Tensor inverse_deviation =
      statistics.squared_deviations.div(statistics.count).add_(eps).rsqrt_();
  // Autograd's functions take no undefined tensors.
  const auto channels = statistics.mean.sizes();
  return Normalize::apply(input,
                          weight.defined() ? weight : at::ones(channels, input.options()),
                          bias.defined() ? bias : at::zeros(channels, input.options()),
                          statistics.mean,
                          inverse_deviation,
                          statistics.count,
                          c10::make_intrusive<SavedGroup>(group));
}

}  // namespace unisono::nn
