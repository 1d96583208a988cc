#pragma once

#include <cstring>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace sim {

/// Returns the device "sim:index".
inline at::Device sim_device(int index) {
  return {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(index)};
}

/// Returns true if both tensors have the same sizes, type and bytes, on any devices.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) {
    return false;
  }
  const at::Tensor x = a.detach().cpu().contiguous().resolve_conj().resolve_neg();
  const at::Tensor y = b.detach().cpu().contiguous().resolve_conj().resolve_neg();
  return x.numel() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

}  // namespace sim
