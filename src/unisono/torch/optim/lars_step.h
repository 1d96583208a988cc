#pragma once

#include <cstddef>

namespace unisono::optim {

struct LarsConstants {
  double lr;
  double momentum;
  double weight_decay;
  double trust_coefficient;
  double eps;
};

/// One step of LARS on the `count` elements of a layer. The arrays do not overlap. For float and
/// double.
template <class T>
void lars_step(T* parameter,
               const T* gradient,
               T* momentum_buffer,
               std::size_t count,
               const LarsConstants& constants);

}  // namespace unisono::optim
