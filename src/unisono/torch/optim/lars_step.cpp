#include "unisono/torch/optim/lars_step.h"

#include <cmath>
#include <cstddef>

#include "unisono/torch/optim/squared_norm.h"

namespace unisono::optim {
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
