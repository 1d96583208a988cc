#include "unisono/torch/optim/optimizer_steps.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace unisono::optim {

template <class T>
void adadelta_step(T* __restrict parameter,
                   const T* __restrict gradient,
                   T* __restrict square_avg,
                   T* __restrict acc_delta,
                   std::size_t count,
                   const AdadeltaConstants& constants) {
  const T lr = static_cast<T>(constants.lr);
  const T rho = static_cast<T>(constants.rho);
  const T rest = static_cast<T>(1 - constants.rho);
  const T eps = static_cast<T>(constants.eps);
  const T weight_decay = static_cast<T>(constants.weight_decay);
  for (std::size_t i = 0; i < count; ++i) {
    const T slope = gradient[i] + weight_decay * parameter[i];
    const T square = rho * square_avg[i] + rest * slope * slope;
    const T delta = std::sqrt(acc_delta[i] + eps) / std::sqrt(square + eps) * slope;
    square_avg[i] = square;
    acc_delta[i] = rho * acc_delta[i] + rest * delta * delta;
    parameter[i] -= lr * delta;
  }
}

template void adadelta_step(
    float*, const float*, float*, float*, std::size_t, const AdadeltaConstants&);
template void adadelta_step(
    double*, const double*, double*, double*, std::size_t, const AdadeltaConstants&);

template <class T>
void adamw_step(T* __restrict parameter,
                const T* __restrict gradient,
                T* __restrict exp_avg,
                T* __restrict exp_avg_sq,
                std::size_t count,
                const AdamWConstants& constants) {
  const T keep = static_cast<T>(1 - constants.lr * constants.weight_decay);
  const T rest1 = static_cast<T>(1 - constants.beta1);
  const T beta2 = static_cast<T>(constants.beta2);
  const T rest2 = static_cast<T>(1 - constants.beta2);
  const T eps = static_cast<T>(constants.eps);
  const T step_size = static_cast<T>(constants.lr / constants.bias_correction1);
  const T root = static_cast<T>(std::sqrt(constants.bias_correction2));
  for (std::size_t i = 0; i < count; ++i) {
    const T slope = gradient[i];
    const T mean = exp_avg[i] + rest1 * (slope - exp_avg[i]);
    const T square = beta2 * exp_avg_sq[i] + rest2 * slope * slope;
    exp_avg[i] = mean;
    exp_avg_sq[i] = square;
    parameter[i] = keep * parameter[i] - step_size * mean / (std::sqrt(square) / root + eps);
  }
}

template void adamw_step(float*, const float*, float*, float*, std::size_t, const AdamWConstants&);
template void adamw_step(
    double*, const double*, double*, double*, std::size_t, const AdamWConstants&);

namespace {

constexpr std::size_t kBlock = 512;

// Computes the directions of up to kBlock elements.
template <class T>
void find_directions(const T* __restrict parameter,
                     const T* __restrict exp_avg,
                     const T* __restrict exp_avg_sq,
                     T* __restrict directions,
                     std::size_t count,
                     const AdamWConstants& constants) {
  const T scale = static_cast<T>(1 / constants.bias_correction1);
  const T root = static_cast<T>(std::sqrt(constants.bias_correction2));
  const T eps = static_cast<T>(constants.eps);
  const T weight_decay = static_cast<T>(constants.weight_decay);
  for (std::size_t i = 0; i < count; ++i) {
    directions[i] =
        scale * exp_avg[i] / (std::sqrt(exp_avg_sq[i]) / root + eps) + weight_decay * parameter[i];
  }
}

template <class T>
void update_moments(const T* __restrict gradient,
                    T* __restrict exp_avg,
                    T* __restrict exp_avg_sq,
                    std::size_t count,
                    const AdamWConstants& constants) {
  const T rest1 = static_cast<T>(1 - constants.beta1);
  const T beta2 = static_cast<T>(constants.beta2);
  const T rest2 = static_cast<T>(1 - constants.beta2);
  for (std::size_t i = 0; i < count; ++i) {
    exp_avg[i] += rest1 * (gradient[i] - exp_avg[i]);
    exp_avg_sq[i] = beta2 * exp_avg_sq[i] + rest2 * gradient[i] * gradient[i];
  }
}

}  // namespace

template <class T>
void lamb_step(T* parameter,
               const T* gradient,
               T* exp_avg,
               T* exp_avg_sq,
               std::size_t count,
               const AdamWConstants& constants) {
  std::array<T, kBlock> directions;
  double weights = 0;
  double steps = 0;
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t size = std::min(kBlock, count - begin);
    T* const mean = exp_avg + begin;
    T* const square = exp_avg_sq + begin;
    update_moments(gradient + begin, mean, square, size, constants);
    find_directions(parameter + begin, mean, square, directions.data(), size, constants);
    weights += squared_norm(parameter + begin, size);
    steps += squared_norm(directions.data(), size);
  }
  const double trust = weights > 0 && steps > 0 ? std::sqrt(weights) / std::sqrt(steps) : 1;
  const T step_size = static_cast<T>(constants.lr * trust);
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t size = std::min(kBlock, count - begin);
    T* const weight = parameter + begin;
    find_directions(
        weight, exp_avg + begin, exp_avg_sq + begin, directions.data(), size, constants);
    for (std::size_t i = 0; i < size; ++i) {
      weight[i] -= step_size * directions[i];
    }
  }
}

template void lamb_step(float*, const float*, float*, float*, std::size_t, const AdamWConstants&);
template void lamb_step(
    double*, const double*, double*, double*, std::size_t, const AdamWConstants&);

namespace {

template <class T>
double trust_ratio(const T* parameter,
                   const T* gradient,
                   std::size_t count,
                   const LarsConstants& constants) {
  if (constants.trust_coefficient == 0) {
    return 1;
  }
  const double weight_norm = std::sqrt(squared_norm(parameter, count));
  const double slope_norm = std::sqrt(squared_norm(gradient, count));
  if (weight_norm == 0 || slope_norm == 0) {
    return 1;
  }
  return constants.trust_coefficient * weight_norm /
         (slope_norm + constants.weight_decay * weight_norm + constants.eps);
}

}  // namespace

template <class T>
void lars_step(T* __restrict parameter,
               const T* __restrict gradient,
               T* __restrict momentum_buffer,
               std::size_t count,
               const LarsConstants& constants) {
  const T ratio = static_cast<T>(trust_ratio(parameter, gradient, count, constants));
  const T lr = static_cast<T>(constants.lr);
  const T momentum = static_cast<T>(constants.momentum);
  const T weight_decay = static_cast<T>(constants.weight_decay);
  for (std::size_t i = 0; i < count; ++i) {
    const T slope = ratio * (gradient[i] + weight_decay * parameter[i]);
    momentum_buffer[i] = momentum * momentum_buffer[i] + slope;
    parameter[i] -= lr * momentum_buffer[i];
  }
}

template void lars_step(float*, const float*, float*, std::size_t, const LarsConstants&);
template void lars_step(double*, const double*, double*, std::size_t, const LarsConstants&);

}  // namespace unisono::optim
