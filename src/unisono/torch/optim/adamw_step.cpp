#include "unisono/torch/optim/adamw_step.h"

#include <cmath>
#include <cstddef>

namespace unisono::optim {

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

}  // namespace unisono::optim
