#include "unisono/torch/parallel/tensor/initial_values.h"

#include <cmath>
#include <cstdint>
#include <optional>

#include <ATen/ops/empty.h>

namespace unisono::parallel {
namespace {

std::optional<at::Generator> if_defined(const at::Generator& generator) {
  return generator.defined() ? std::optional(generator) : std::nullopt;
}

// kaiming_uniform_() and xavier_uniform_() compute their bounds in these steps, which round.
double bound_of_deviation(double deviation) {
  return std::sqrt(3.0) * deviation;
}

}  // namespace

at::Tensor draw_uniform(at::IntArrayRef whole, double bound, const at::Generator& generator) {
  return at::empty(whole).uniform_(-bound, bound, if_defined(generator));
}

at::Tensor draw_normal(at::IntArrayRef whole, const at::Generator& generator) {
  return at::empty(whole).normal_(0, 1, if_defined(generator));
}

double linear_weight_bound(std::int64_t in_features) {
  const double gain = std::sqrt(2.0 / (1 + std::pow(std::sqrt(5.0), 2)));
  return bound_of_deviation(gain / std::sqrt(static_cast<double>(in_features)));
}

double linear_bias_bound(std::int64_t in_features) {
  return 1 / std::sqrt(static_cast<double>(in_features));
}

double xavier_bound(std::int64_t fan_in, std::int64_t fan_out) {
  return bound_of_deviation(std::sqrt(2.0 / static_cast<double>(fan_in + fan_out)));
}

}  // namespace unisono::parallel
