#include "unisono/torch/optim/adadelta_step.h"

#include <cmath>
#include <cstddef>

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

}  // namespace unisono::optim
