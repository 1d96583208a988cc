// Prints a parameter after 20 steps. Each case has a line: its name, then the elements.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <torch/optim/adam.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "unisono/torch/optim/optimizers.h"
#include "unisono/torch/optim/weight_average.h"

namespace {

using namespace unisono::optim;
using Parameters = std::vector<at::Tensor>;

constexpr int kSteps = 20;
// More than a block of any loop, and not a multiple of a vector.
constexpr std::int64_t kElems = 1030;

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(Parameters)>;

template <class Optimizer, class Options>
MakeOptimizer maker(const Options& options) {
  return [options](Parameters parameters) {
    return std::make_unique<Optimizer>(std::move(parameters), options);
  };
}

std::map<std::string, MakeOptimizer> all_optimizers() {
  return {
      {"adadelta", maker<Adadelta>(AdadeltaOptions(0.9).weight_decay(0.1))},
      {"adamw", maker<AdamW>(AdamWOptions())},
      {"adamw_fast",
       maker<AdamW>(AdamWOptions(0.1).betas(Betas(0.8, 0.95)).eps(1e-3).weight_decay(0.2))},
      {"lamb", maker<Lamb>(LambOptions(0.02).weight_decay(0.05))},
      {"lars", maker<Lars>(LarsOptions(0.5).weight_decay(0.05).trust_coefficient(0.1))},
      {"lars_plain", maker<Lars>(LarsOptions(0.01).trust_coefficient(0))},
      // Optimizers of LibTorch, which the guide lists together with ours.
      {"adam", maker<torch::optim::Adam>(torch::optim::AdamOptions(0.01))},
      {"sgd", maker<torch::optim::SGD>(torch::optim::SGDOptions(0.05).momentum(0.9))},
  };
}

// Returns a parameter, which is in the middle of a wider tensor if `is_strided` is set.
at::Tensor make_parameter(torch::Dtype dtype, bool is_strided) {
  const at::Tensor numbers = torch::arange(1, kElems + 1, torch::kDouble);
  at::Tensor parameter =
      is_strided ? torch::zeros({kElems, 3}, dtype).select(1, 1) : torch::zeros({kElems}, dtype);
  parameter.copy_(numbers.sin());
  return parameter.set_requires_grad(true);
}

void set_gradient(const at::Tensor& parameter, int step) {
  const at::Tensor numbers = torch::arange(1, kElems + 1, torch::kDouble);
  const at::Tensor wave = (numbers * (0.3 * step)).cos() * 0.1;
  parameter.mutable_grad() = parameter.detach() * 0.5 + wave.to(parameter.scalar_type());
}

void print(const std::string& name, const at::Tensor& parameter) {
  const at::Tensor values = parameter.detach().to(torch::kDouble).contiguous();
  std::printf("%s", name.c_str());
  for (std::int64_t i = 0; i < kElems; ++i) {
    std::printf(" %.17g", values.const_data_ptr<double>()[i]);
  }
  std::printf("\n");
}

void print_steps(const std::string& name, const MakeOptimizer& make, const at::Tensor& parameter) {
  const auto optimizer = make({parameter});
  WeightAverage exponential = WeightAverage::exponential({parameter}, 0.9);
  WeightAverage uniform = WeightAverage::uniform({parameter});
  for (int step = 0; step < kSteps; ++step) {
    set_gradient(parameter, step);
    optimizer->step();
    exponential.update();
    uniform.update();
  }
  print(name, parameter);
  print(name + "/exponential", exponential.values()[0]);
  print(name + "/uniform", uniform.values()[0]);
}

}  // namespace

int main() {
  try {
    for (const auto& [name, make] : all_optimizers()) {
      print_steps(name + "/float32", make, make_parameter(torch::kFloat, false));
      print_steps(name + "/float64", make, make_parameter(torch::kDouble, false));
      print_steps(name + "/float32/strided", make, make_parameter(torch::kFloat, true));
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
