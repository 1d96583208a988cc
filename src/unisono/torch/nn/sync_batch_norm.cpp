#include "unisono/torch/nn/sync_batch_norm.h"

#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>

#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/torch/tensor/saved_group.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::nn {

/// Statistics of each channel over the batches of all ranks, in double precision.
struct BatchStatistics {
  at::Tensor mean;
  /// Sum of squared deviations; divide by `count` for the variance.
  at::Tensor squared_deviations;
  double count;  ///< Number of elements per channel.
};

/// Combines the statistics of all ranks. A collective operation. `input` has its channels in
/// dimension 1; the batch may be empty.
[[nodiscard]] static BatchStatistics combine_statistics(ProcessGroup& group,
                                                        const at::Tensor& input);

/// Returns (input - mean) / sqrt(variance + eps) * weight + bias, in the type of `input`. The
/// gradient passes through the statistics, so backward is a collective operation as well. Weight
/// and bias may be undefined. 16-bit inputs are computed in 32 bits.
[[nodiscard]] static at::Tensor normalize(const std::shared_ptr<ProcessGroup>& group,
                                          const at::Tensor& input,
                                          const at::Tensor& weight,
                                          const at::Tensor& bias,
                                          const BatchStatistics& statistics,
                                          double eps);

namespace {

namespace autograd = ::torch::autograd;

// Returns all dimensions except the channels' dimension.
std::vector<std::int64_t> batch_dimensions(const at::Tensor& tensor) {
  std::vector<std::int64_t> dimensions;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    if (i != 1) {
      dimensions.push_back(i);
    }
  }
  return dimensions;
}

// Returns a value per channel, shaped to be broadcast over `like`.
at::Tensor per_channel(const at::Tensor& values, const at::Tensor& like) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(like.dim()), 1);
  sizes[1] = values.numel();
  return values.to(like.scalar_type()).view(sizes);
}

at::Tensor sum_per_channel(const at::Tensor& tensor) {
  return tensor.sum(batch_dimensions(tensor), /*keepdim=*/false, at::kDouble);
}

// 16 bits are too few for the computation: the rounding error of the mean may be a large part of
// the deviation.
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
    // The statistics depend on the inputs of all ranks.
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
                                   at::full({1}, static_cast<double>(n_mine), values.options())});
  const at::Tensor all = at::empty({group.world_size(), mine.numel()}, values.options());
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
  // Autograd functions accept no undefined tensors.
  const auto channels = statistics.mean.sizes();
  return Normalize::apply(input,
                          weight.defined() ? weight : at::ones(channels, input.options()),
                          bias.defined() ? bias : at::zeros(channels, input.options()),
                          statistics.mean,
                          inverse_deviation,
                          statistics.count,
                          c10::make_intrusive<SavedGroup>(group));
}

namespace {

void check(bool is_right, const std::string& problem) {
  if (!is_right) {
    throw Error(ErrorCode::kInvalidArgument, "SyncBatchNorm: " + problem);
  }
}

// Returns a SyncBatchNorm with the parameters and buffers of `module`; null for other modules.
template <class BatchNormImpl>
SyncBatchNorm convert_from(const torch::nn::Module& module) {
  const auto* const from = module.as<BatchNormImpl>();
  if (from == nullptr) {
    return nullptr;
  }
  SyncBatchNorm to(from->options);
  for (const auto& [ours, theirs] :
       {std::pair(&to->weight, &from->weight), std::pair(&to->bias, &from->bias)}) {
    if (ours->defined()) {
      const c10::NoGradGuard no_grad;
      ours->set_data(theirs->detach());
      ours->set_requires_grad(theirs->requires_grad());
    }
  }
  for (const auto& [ours, theirs] :
       {std::pair(&to->running_mean, &from->running_mean),
        std::pair(&to->running_var, &from->running_var),
        std::pair(&to->num_batches_tracked, &from->num_batches_tracked)}) {
    if (ours->defined()) {
      ours->set_data(*theirs);
    }
  }
  to->train(from->is_training());
  return to;
}

SyncBatchNorm convert(const torch::nn::Module& module) {
  if (SyncBatchNorm from_1d = convert_from<torch::nn::BatchNorm1dImpl>(module)) {
    return from_1d;
  }
  if (SyncBatchNorm from_2d = convert_from<torch::nn::BatchNorm2dImpl>(module)) {
    return from_2d;
  }
  return convert_from<torch::nn::BatchNorm3dImpl>(module);
}

// Keyed by the replaced module, so that a module that is registered twice stays a single module.
using Converted = std::map<std::shared_ptr<torch::nn::Module>, SyncBatchNorm>;

void replace_in(torch::nn::SequentialImpl& sequential, Converted& converted) {
  const auto names = sequential.named_children().keys();
  std::size_t i = 0;
  for (torch::nn::AnyModule& child : sequential) {
    const std::shared_ptr<torch::nn::Module> module = child.ptr();
    if (!converted.contains(module)) {
      converted.emplace(module, convert(*module));
    }
    if (SyncBatchNorm norm = converted.at(module)) {
      child = torch::nn::AnyModule(norm);
      sequential.replace_module(names[i], norm);
    }
    ++i;
  }
}

void check_members(const torch::nn::Module& module, const std::string& prefix) {
  const bool is_sequential = module.as<torch::nn::SequentialImpl>() != nullptr;
  for (const auto& child : module.named_children()) {
    const std::string name = prefix + child.key();
    check(is_sequential || !convert(*child.value()),
          "'" + name +
              "' is a member of a class, and can't be replaced from outside: declare it "
              "as unisono::nn::SyncBatchNorm instead of torch::nn::BatchNorm");
    check_members(*child.value(), name + ".");
  }
}

}  // namespace

SyncBatchNormImpl::SyncBatchNormImpl(const torch::nn::BatchNormOptions& norm_options,
                                     std::shared_ptr<ProcessGroup> group)
    : NormImplBase(norm_options), group_(std::move(group)) {
  check(norm_options.num_features() > 0, "there are no channels");
}

void SyncBatchNormImpl::_check_input_dim(const at::Tensor& input) {
  std::ostringstream problem;
  if (input.dim() < 2 || input.size(1) != options.num_features()) {
    problem << "the input is " << input.sizes() << "; it must have two dimensions or more, and "
            << options.num_features() << " channels in the second";
  }
  check(problem.str().empty(), problem.str());
}

double SyncBatchNormImpl::next_momentum() {
  if (!num_batches_tracked.defined()) {
    return options.momentum().value_or(0);
  }
  num_batches_tracked.add_(1);
  return options.momentum() ? *options.momentum() : 1 / num_batches_tracked.item<double>();
}

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& input) {
  _check_input_dim(input);
  const double momentum = is_training() ? next_momentum() : 0;
  if (!is_training() || group_ == nullptr) {
    return at::batch_norm(input,
                          weight,
                          bias,
                          running_mean,
                          running_var,
                          is_training() || !running_mean.defined(),
                          momentum,
                          options.eps(),
                          at::globalContext().userEnabledCuDNN());
  }
  const BatchStatistics statistics = combine_statistics(*group_, input);
  check(statistics.count > 1,
        "a channel needs two elements or more to train, on all ranks together");
  if (running_mean.defined()) {
    const c10::NoGradGuard no_grad;
    running_mean.mul_(1 - momentum).add_(statistics.mean, momentum);
    running_var.mul_(1 - momentum)
        .add_(statistics.squared_deviations, momentum / (statistics.count - 1));
  }
  return normalize(group_, input, weight, bias, statistics, options.eps());
}

std::size_t convert_sync_batchnorm(torch::nn::Module& module,
                                   const std::shared_ptr<ProcessGroup>& group) {
  check(group != nullptr, "the process group is null");
  check_members(module, "");
  // apply() visits a module before its children, so a Sequential's children are replaced before the
  // visit.
  Converted converted;
  module.apply([&](torch::nn::Module& part) {
    if (auto* const sequential = part.as<torch::nn::SequentialImpl>()) {
      replace_in(*sequential, converted);
    }
  });
  std::size_t n_synchronized = 0;
  module.apply([&](torch::nn::Module& part) {
    if (auto* const norm = part.as<SyncBatchNormImpl>()) {
      norm->set_group(group);
      ++n_synchronized;
    }
  });
  return n_synchronized;
}

}  // namespace unisono::nn
