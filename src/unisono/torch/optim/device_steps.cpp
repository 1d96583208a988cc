#include "unisono/torch/optim/device_steps.h"

#include <cmath>
#include <cstdint>
#include <map>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include "unisono/base/mutex.h"

namespace unisono::optim {
namespace {

// Makes `mean` the running mean: factor * mean + (1 - factor) * values ^ 2.
void update_square_mean(const Tensors& means, const Tensors& values, double factor) {
  const Tensors squares = at::_foreach_mul(values, 1 - factor);
  at::_foreach_mul_(squares, values);
  at::_foreach_mul_(means, factor);
  at::_foreach_add_(means, squares);
}

void update_moments(const AdamTensors& tensors, const AdamWConstants& constants) {
  const Tensors changes = at::_foreach_sub(tensors.gradients, tensors.exp_avgs);
  at::_foreach_mul_(changes, 1 - constants.beta1);
  at::_foreach_add_(tensors.exp_avgs, changes);
  update_square_mean(tensors.exp_avg_sqs, tensors.gradients, constants.beta2);
}

template <class Value>
std::vector<at::Scalar> by_parameter(std::span<const AdamWConstants> constants,
                                     const Value& value) {
  std::vector<at::Scalar> values;
  values.reserve(constants.size());
  for (const AdamWConstants& of_parameter : constants) {
    values.emplace_back(value(of_parameter));
  }
  return values;
}

// Returns true if the device's operator rounds square roots of floats correctly, as GPUs and the
// loops of optimizer_steps.h do. LibTorch's operator for the CPU, by Intel's MKL, does not.
bool is_sqrt_exact(const at::Tensor& like) {
  static Mutex mutex;
  static std::map<at::DeviceType, bool> known;
  const MutexLock lock(mutex);
  const auto [place, is_new] = known.emplace(like.device().type(), true);
  if (is_new) {
    constexpr std::int64_t kTried = 4096;
    const at::Tensor numbers = at::arange(1, kTried + 1, at::TensorOptions(at::kFloat)).mul_(0.37);
    const at::Tensor roots = numbers.to(like.device()).sqrt_().cpu();
    const auto* const number = numbers.const_data_ptr<float>();
    const auto* const root = roots.const_data_ptr<float>();
    for (std::int64_t i = 0; i < kTried; ++i) {
      place->second = place->second && root[i] == std::sqrt(number[i]);
    }
  }
  return place->second;
}

// The root of a float is rounded correctly by way of double, even if the root of the double is not.
Tensors square_roots_of(const Tensors& tensors) {
  if (tensors.front().scalar_type() != at::kFloat || is_sqrt_exact(tensors.front())) {
    return at::_foreach_sqrt(tensors);
  }
  Tensors roots;
  roots.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    roots.push_back(tensor.to(at::kDouble).sqrt_().to(at::kFloat));
  }
  return roots;
}

// Returns factor * exp_avg / (sqrt(exp_avg_sq) / root + eps), with a factor for each parameter.
Tensors directions_of(const AdamTensors& tensors,
                      std::span<const AdamWConstants> constants,
                      const std::vector<at::Scalar>& factors) {
  const Tensors divisors = square_roots_of(tensors.exp_avg_sqs);
  at::_foreach_div_(divisors, by_parameter(constants, [](const AdamWConstants& of) {
                      return std::sqrt(of.bias_correction2);
                    }));
  at::_foreach_add_(divisors, constants.front().eps);
  Tensors directions = at::_foreach_mul(tensors.exp_avgs, factors);
  at::_foreach_div_(directions, divisors);
  return directions;
}

// Returns the norm of each tensor, as one tensor of double precision.
at::Tensor norms_of(const Tensors& tensors) {
  return at::stack(at::_foreach_norm(tensors, 2, at::kDouble));
}

// Multiplies each tensor by an element of `factors`, rounded to the tensors' type.
void multiply(const Tensors& tensors, const at::Tensor& factors) {
  at::_foreach_mul_(tensors, factors.to(tensors.front().scalar_type()).unbind());
}

}  // namespace

void adadelta_step(const Tensors& parameters,
                   const Tensors& gradients,
                   const Tensors& square_avgs,
                   const Tensors& acc_deltas,
                   const AdadeltaConstants& constants) {
  const Tensors slopes = at::_foreach_mul(parameters, constants.weight_decay);
  at::_foreach_add_(slopes, gradients);
  update_square_mean(square_avgs, slopes, constants.rho);
  const Tensors deltas = square_roots_of(at::_foreach_add(acc_deltas, constants.eps));
  const Tensors divisors = square_roots_of(at::_foreach_add(square_avgs, constants.eps));
  at::_foreach_div_(deltas, divisors);
  at::_foreach_mul_(deltas, slopes);
  update_square_mean(acc_deltas, deltas, constants.rho);
  at::_foreach_mul_(deltas, constants.lr);
  at::_foreach_sub_(parameters, deltas);
}

void adamw_step(const AdamTensors& tensors, std::span<const AdamWConstants> constants) {
  update_moments(tensors, constants.front());
  const Tensors directions =
      directions_of(tensors, constants, by_parameter(constants, [](const AdamWConstants& of) {
                      return of.lr / of.bias_correction1;
                    }));
  at::_foreach_mul_(tensors.parameters, 1 - constants.front().lr * constants.front().weight_decay);
  at::_foreach_sub_(tensors.parameters, directions);
}

void lamb_step(const AdamTensors& tensors, std::span<const AdamWConstants> constants) {
  update_moments(tensors, constants.front());
  const Tensors directions =
      directions_of(tensors, constants, by_parameter(constants, [](const AdamWConstants& of) {
                      return 1 / of.bias_correction1;
                    }));
  at::_foreach_add_(directions,
                    at::_foreach_mul(tensors.parameters, constants.front().weight_decay));
  const at::Tensor weights = norms_of(tensors.parameters);
  const at::Tensor steps = norms_of(directions);
  // NaNs count as zeros, as on the CPU.
  const at::Tensor are_positive = weights.gt(0).logical_and_(steps.gt(0));
  multiply(directions, at::where(are_positive, weights / steps, 1).mul_(constants.front().lr));
  at::_foreach_sub_(tensors.parameters, directions);
}

void lars_step(const Tensors& parameters,
               const Tensors& gradients,
               const Tensors& momentum_buffers,
               const LarsConstants& constants) {
  const Tensors slopes = at::_foreach_mul(parameters, constants.weight_decay);
  at::_foreach_add_(slopes, gradients);
  if (constants.trust_coefficient != 0) {
    const at::Tensor weights = norms_of(parameters);
    const at::Tensor of_gradients = norms_of(gradients);
    const at::Tensor ratios =
        weights.mul(constants.trust_coefficient) /
        (of_gradients + weights.mul(constants.weight_decay)).add_(constants.eps);
    multiply(slopes, at::where(weights.eq(0).logical_or_(of_gradients.eq(0)), 1, ratios));
  }
  at::_foreach_mul_(momentum_buffers, constants.momentum);
  at::_foreach_add_(momentum_buffers, slopes);
  at::_foreach_sub_(parameters, at::_foreach_mul(momentum_buffers, constants.lr));
}

}  // namespace unisono::optim
