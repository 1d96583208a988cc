#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "sim_device/checker.h"
#include "sim_device/machine.h"
#include "sim_device/torch_device.h"

namespace sim {

/// The bytes of a tensor without the storage that keeps them alive. Tasks hold places, as a GPU's
/// kernels hold pointers: a tensor that is released too early shows wrong values.
struct Place {
  void* data = nullptr;  ///< An address that the host may access.
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  at::ScalarType type{};
  bool is_conjugate = false;
  bool is_negative = false;

  /// Returns a CPU tensor of the bytes. Called by tasks.
  [[nodiscard]] at::Tensor open() const;
};

/// Returns the place of a tensor of a device, with the address of the alias.
Place place_of(const at::Tensor& tensor);

/// Returns the place of a CPU tensor.
Place host_place_of(const at::Tensor& tensor);

/// Returns the bytes from the first to the last element.
std::size_t extent_of(const at::Tensor& tensor);

/// `operation` must live as long as the checker.
Access read_of(const at::Tensor& tensor, const char* operation);
Access write_of(const at::Tensor& tensor, const char* operation);

/// Returns an uninitialized tensor on a device.
at::Tensor make_tensor(c10::Device device,
                       at::IntArrayRef sizes,
                       at::IntArrayRef strides,
                       at::ScalarType type);

/// Returns the device with its index. A missing index means the current device.
c10::Device with_index(c10::Device device);

/// Returns the current stream of the calling thread on the device.
Stream& current_stream(c10::Device device);

/// Waits for the stream, then throws an error of a task, if any. Counts as a host wait.
void wait_for(Stream& stream);

/// Operators that are called in this scope go to the kernels, below autograd and autocast.
class BelowAutograd {
  c10::impl::ExcludeDispatchKeyGuard autocast_{c10::autocast_dispatch_keyset};
  at::AutoDispatchBelowADInplaceOrView autograd_;
};

/// Returns the value with `change` applied to each defined tensor: the value itself, or the
/// elements of a list.
template <class Change>
c10::IValue with_tensors(const c10::IValue& value, const Change& change) {
  const auto changed = [&](const at::Tensor& t) { return t.defined() ? change(t) : t; };
  if (value.isTensor()) {
    return changed(value.toTensor());
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& t : value.toTensorVector()) {
      list.push_back(changed(t));
    }
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& t : value.toOptionalTensorList()) {
      list.push_back(t ? std::optional<at::Tensor>(changed(*t)) : t);
    }
    return list;
  }
  return value;
}

/// Calls `visit` with each defined tensor of the value.
template <class Visit>
void for_each_tensor(const c10::IValue& value, const Visit& visit) {
  with_tensors(value, [&](const at::Tensor& t) {
    visit(t);
    return t;
  });
}

}  // namespace sim
