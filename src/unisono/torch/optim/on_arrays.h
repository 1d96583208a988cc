#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include <ATen/core/Tensor.h>

namespace unisono::optim {

/// Whether the elements of all lie in memory in the same order, without gaps, as type T.
template <class T, std::size_t N>
bool is_one_layout(const at::Tensor& gradient, const std::array<at::Tensor, N>& updated) {
  const auto fits = [&](const at::Tensor& tensor) {
    return tensor.scalar_type() == c10::CppTypeToScalarType<T>::value &&
           tensor.strides() == updated[0].strides() && tensor.device().is_cpu();
  };
  bool do_all_fit = updated[0].is_non_overlapping_and_dense() && fits(gradient);
  for (const at::Tensor& tensor : updated) {
    do_all_fit = do_all_fit && fits(tensor);
  }
  return do_all_fit;
}

template <class T, std::size_t N, class Body>
void on_arrays_of(const at::Tensor& gradient,
                  const std::array<at::Tensor, N>& updated,
                  const Body& body) {
  const auto call = [&](const at::Tensor& slope, const std::array<at::Tensor, N>& tensors) {
    std::array<T*, N> arrays{};
    for (std::size_t i = 0; i < N; ++i) {
      arrays[i] = tensors[i].template data_ptr<T>();
    }
    body(slope.const_data_ptr<T>(), arrays, static_cast<std::size_t>(slope.numel()));
  };
  if (is_one_layout<T>(gradient, updated)) {
    call(gradient, updated);
    return;
  }
  constexpr at::ScalarType kType = c10::CppTypeToScalarType<T>::value;
  const auto flat = [&](const at::Tensor& tensor) {
    return tensor.to(kType, /*non_blocking=*/false, /*copy=*/true, at::MemoryFormat::Contiguous);
  };
  std::array<at::Tensor, N> copies;
  std::ranges::transform(updated, copies.begin(), flat);
  call(flat(gradient), copies);
  for (std::size_t i = 0; i < N; ++i) {
    updated[i].copy_(copies[i]);
  }
}

/// Calls `body(gradient, arrays, count)` with the elements of a gradient and of the tensors that an
/// optimizer's step changes, in one order: arrays of double for a double parameter, of float for
/// any other. Tensors of one layout are passed as they are, others by copies.
template <std::size_t N, class Body>
void on_arrays(const at::Tensor& gradient,
               const std::array<at::Tensor, N>& updated,
               const Body& body) {
  if (updated[0].scalar_type() == at::kDouble) {
    on_arrays_of<double>(gradient, updated, body);
  } else {
    on_arrays_of<float>(gradient, updated, body);
  }
}

}  // namespace unisono::optim
