#include "unisono/torch/nn/sync_batch_norm.h"

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/batch_norm.h>
#include <c10/core/GradMode.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/nn/batch_statistics.h"

namespace unisono::nn {
namespace {

void check(bool is_right, const std::string& problem) {
  if (!is_right) {
    throw Error(ErrorCode::kInvalidArgument, "SyncBatchNorm: " + problem);
  }
}

// The same parameters and buffers, in a SyncBatchNorm; null for other modules.
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

// By the module that was replaced: one that is registered twice stays one.
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
                          /*cudnn_enabled=*/false);
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
  // What is replaced below a module must be known before its children are asked for.
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
