#include "sim_device/place.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>

namespace sim {

at::Tensor Place::open() const {
  at::Tensor tensor = at::detail::empty_cpu({0}, type, false);
  at::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  // The storage may grow into host memory: kernels such as mse_loss.out resize their result on the
  // way to its final size.
  impl->set_storage_keep_dtype(
      c10::Storage(c10::Storage::use_byte_size_t(),
                   at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(type)),
                   c10::DataPtr(data, c10::Device(c10::kCPU)),
                   c10::GetAllocator(c10::kCPU),
                   /*resizable=*/true));
  impl->set_sizes_and_strides(sizes, strides);
  if (is_conjugate) {
    tensor._set_conj(true);
  }
  if (is_negative) {
    tensor._set_neg(true);
  }
  return tensor;
}

Place host_place_of(const at::Tensor& tensor) {
  return {const_cast<void*>(tensor.const_data_ptr()),
          tensor.sizes().vec(),
          tensor.strides().vec(),
          tensor.scalar_type(),
          tensor.is_conj(),
          tensor.is_neg()};
}

Place place_of(const at::Tensor& tensor) {
  Place place = host_place_of(tensor);
  if (place.data != nullptr) {
    place.data = machine().memory.alias(place.data);
  }
  return place;
}

std::size_t extent_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0) {
    return 0;
  }
  return at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize());
}

Access read_of(const at::Tensor& tensor, const char* operation) {
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
  return {begin, begin + extent_of(tensor), false, operation};
}

Access write_of(const at::Tensor& tensor, const char* operation) {
  Access access = read_of(tensor, operation);
  access.is_write = true;
  return access;
}

at::Tensor make_tensor(c10::Device device,
                       at::IntArrayRef sizes,
                       at::IntArrayRef strides,
                       at::ScalarType type) {
  const c10::DeviceGuard guard(device);
  return at::detail::empty_strided_generic(sizes,
                                           strides,
                                           c10::GetAllocator(kDeviceType),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           type);
}

c10::Device with_index(c10::Device device) {
  if (device.has_index()) {
    return device;
  }
  return {kDeviceType, static_cast<c10::DeviceIndex>(current_device())};
}

Stream& current_stream(c10::Device device) {
  return machine().streams.current(with_index(device).index());
}

void wait_for(Stream& stream) {
  machine().context.host_waits.fetch_add(1, std::memory_order_relaxed);
  stream.synchronize();
  machine().context.errors.rethrow();
}

}  // namespace sim
