#pragma once

#include <cstddef>

namespace unisono::optim {

struct AdamWConstants {
  double lr;
  double beta1;
  double beta2;
  double eps;
  double weight_decay;
  double bias_correction1;  ///< 1 - beta1 ^ step
  double bias_correction2;
};

/// One step of AdamW on `count` elements, in one pass over them. The arrays do not overlap. For
/// float and double.
template <class T>
void adamw_step(T* parameter,
                const T* gradient,
                T* exp_avg,
                T* exp_avg_sq,
                std::size_t count,
                const AdamWConstants& constants);

}  // namespace unisono::optim
