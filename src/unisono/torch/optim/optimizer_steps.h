#pragma once

#include <cstddef>

namespace unisono::optim {

/// Returns the sum of squares, in double. Equal numbers give equal bits: the order of additions is
/// fixed and does not depend on the machine's vector length.
template <class T>
[[nodiscard]] double squared_norm(const T* values, std::size_t count) {
  constexpr std::size_t kLanes = 8;
  double lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(values[i + lane]);
      lanes[lane] += value * value;
    }
  }
  for (std::size_t lane = 0; i < count; ++i, ++lane) {
    const auto value = static_cast<double>(values[i]);
    lanes[lane] += value * value;
  }
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

/// Scalars of a step; names follow AdadeltaOptions.
struct AdadeltaConstants {
  double lr;
  double rho;
  double eps;
  double weight_decay;
};

/// Makes a step of Adadelta on `count` elements, in a single pass over the elements. The arrays
/// must not overlap. Instantiated for float and double.
template <class T>
void adadelta_step(T* parameter,
                   const T* gradient,
                   T* square_avg,
                   T* acc_delta,
                   std::size_t count,
                   const AdadeltaConstants& constants);

/// Scalars of a step; names follow AdamWOptions.
struct AdamWConstants {
  double lr;
  double beta1;
  double beta2;
  double eps;
  double weight_decay;
  double bias_correction1;  ///< 1 - beta1 ^ step.
  double bias_correction2;
};

/// Makes a step of AdamW on `count` elements, in a single pass over the elements. The arrays must
/// not overlap. Instantiated for float and double.
template <class T>
void adamw_step(T* parameter,
                const T* gradient,
                T* exp_avg,
                T* exp_avg_sq,
                std::size_t count,
                const AdamWConstants& constants);

/// Makes one step of LAMB on the `count` elements of a layer, in two passes over the elements. The
/// arrays must not overlap. Instantiated for float and double.
template <class T>
void lamb_step(T* parameter,
               const T* gradient,
               T* exp_avg,
               T* exp_avg_sq,
               std::size_t count,
               const AdamWConstants& constants);

/// Scalars of a step; names follow LarsOptions.
struct LarsConstants {
  double lr;
  double momentum;
  double weight_decay;
  double trust_coefficient;
  double eps;
};

/// Makes one step of LARS on the `count` elements of a layer. The arrays must not overlap.
/// Instantiated for float and double.
template <class T>
void lars_step(T* parameter,
               const T* gradient,
               T* momentum_buffer,
               std::size_t count,
               const LarsConstants& constants);

}  // namespace unisono::optim
