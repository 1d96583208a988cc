#include "unisono/torch/optim/lamb_step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "unisono/torch/optim/squared_norm.h"

namespace unisono::optim {
namespace {

constexpr std::size_t kBlock = 512;

// The directions of up to kBlock elements.
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

}  // namespace unisono::optim
