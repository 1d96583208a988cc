#include "pipelines.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include "unisono/pipeline/known_schedules.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"

#include "canonical.h"

namespace unisono::testing {
namespace {

// The values are pairwise different, and no pattern repeats with the shape.
torch::Tensor values_like(const torch::Tensor& tensor, double phase) {
  return torch::sin(torch::arange(tensor.numel(), torch::kFloat64) * 0.7 + phase)
      .mul(0.6)
      .view(tensor.sizes())
      .to(tensor.scalar_type());
}

}  // namespace

void fill(torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  double phase = 1;
  for (torch::Tensor& parameter : module.parameters()) {
    parameter.copy_(values_like(parameter, phase));
    phase += 1.3;
  }
}

torch::nn::Sequential make_chain(torch::Dtype dtype, double dropout) {
  namespace nn = torch::nn;
  nn::Sequential chain(nn::Linear(6, 8),
                       nn::Tanh(),
                       nn::LayerNorm(nn::LayerNormOptions({8})),
                       nn::Linear(8, 10),
                       nn::Dropout(dropout),
                       nn::ReLU(nn::ReLUOptions(true)),
                       nn::Linear(nn::LinearOptions(10, 8).bias(false)),
                       nn::Tanh(),
                       nn::Linear(8, 8),
                       nn::Dropout(dropout),
                       nn::Sigmoid(),
                       nn::Linear(8, 3));
  fill(*chain);
  chain->to(dtype);
  return chain;
}

torch::nn::Sequential make_tied_chain() {
  torch::nn::Linear first(torch::nn::LinearOptions(6, 6).bias(false));
  torch::nn::Sequential model(
      first, torch::nn::Tanh(), torch::nn::Linear(6, 6), torch::nn::Tanh(), first);
  fill(*model);
  return model;
}

torch::Tensor make_batch(std::int64_t n, torch::Dtype dtype) {
  return values_like(torch::empty({n, 6}, dtype), 0.2);
}

torch::Tensor make_targets(std::int64_t n) {
  return torch::arange(n) % 3;
}

torch::Tensor loss_of_classes(const torch::Tensor& output, const torch::Tensor& target) {
  return torch::nn::functional::cross_entropy(output, target);
}

double run_chunks(torch::nn::Sequential& model,
                  const torch::Tensor& batch,
                  const torch::Tensor& targets,
                  int n_chunks) {
  // Ranks also use one thread: the number of threads determines the partial sums over a batch.
  at::set_num_threads(1);
  double sum = 0;
  const std::vector<torch::Tensor> inputs = batch.chunk(n_chunks);
  const std::vector<torch::Tensor> of_targets = targets.chunk(n_chunks);
  for (std::size_t chunk = 0; chunk < inputs.size(); ++chunk) {
    const torch::Tensor loss = loss_of_classes(model->forward(inputs[chunk]), of_targets[chunk]);
    (loss / n_chunks).backward();
    sum += loss.item<double>();
  }
  return sum / n_chunks;
}

Named gradients_of(const std::vector<NamedTensor>& parameters) {
  Named gradients;
  for (const NamedTensor& parameter : parameters) {
    gradients[parameter.name] = parameter.tensor.grad();
  }
  return gradients;
}

Named gradients_of(const torch::nn::Sequential& model) {
  Named gradients;
  for (const auto& parameter : model->named_parameters()) {
    gradients[parameter.key()] = parameter.value().grad();
  }
  return gradients;
}

std::string difference(const Named& some, const Named& all) {
  std::string text;
  for (const auto& [name, tensor] : some) {
    const auto other = all.find(name);
    if (other == all.end()) {
      text += name + " is only on one side; ";
    } else if (!is_bit_equal({tensor}, {other->second})) {
      text += name + " differs; ";
    }
  }
  return text;
}

double relative_difference(const Named& some, const Named& all) {
  double most = 0;
  for (const auto& [name, tensor] : some) {
    const torch::Tensor& other = all.at(name);
    most = std::max(
        most, ((tensor - other).abs().max() / other.abs().max().clamp_min(1e-30)).item<double>());
  }
  return most;
}

std::vector<std::string> all_schedules() {
  std::vector<std::string> names;
  for (const pipeline::KnownSchedule& schedule : pipeline::known_schedules()) {
    names.emplace_back(schedule.name);
  }
  return names;
}

}  // namespace unisono::testing
