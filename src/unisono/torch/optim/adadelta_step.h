#pragma once

#include <cstddef>

namespace unisono::optim {

struct AdadeltaConstants {
  double lr;
  double rho;
  double eps;
  double weight_decay;
};

/// One step of Adadelta on `count` elements, in one pass over them. The arrays do not overlap.
/// For float and double.
template <class T>
void adadelta_step(T* parameter,
                   const T* gradient,
                   T* square_avg,
                   T* acc_delta,
                   std::size_t count,
                   const AdadeltaConstants& constants);

}  // namespace unisono::optim
