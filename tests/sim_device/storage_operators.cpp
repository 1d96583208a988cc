#include <optional>
#include <utility>

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/strides.h>
#include <torch/library.h>

#include "sim_device/place.h"
#include "sim_device/torch_device.h"

namespace sim {
namespace {

std::vector<std::int64_t> plain_strides(at::IntArrayRef sizes) {
  const auto strides = c10::contiguous_strides(sizes);
  return {strides.begin(), strides.end()};
}

at::Tensor empty(at::IntArrayRef sizes,
                 std::optional<at::ScalarType> type,
                 std::optional<at::Layout> /*layout*/,
                 std::optional<c10::Device> device,
                 std::optional<bool> is_pinned,
                 std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(!is_pinned.value_or(false), "Only dense CPU tensors can be pinned");
  const c10::DeviceGuard guard(with_index(device.value_or(c10::Device(kDeviceType))));
  return at::detail::empty_generic(sizes,
                                   &device_allocator(),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(type),
                                   format);
}

at::Tensor empty_strided(at::IntArrayRef sizes,
                         at::IntArrayRef strides,
                         std::optional<at::ScalarType> type,
                         std::optional<at::Layout> /*layout*/,
                         std::optional<c10::Device> device,
                         std::optional<bool> is_pinned) {
  TORCH_CHECK(!is_pinned.value_or(false), "Only dense CPU tensors can be pinned");
  return make_tensor(with_index(device.value_or(c10::Device(kDeviceType))),
                     sizes,
                     strides,
                     c10::dtype_or_default(type));
}

void grow(const c10::Storage& storage, std::size_t bytes) {
  if (bytes > storage.nbytes()) {
    at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(storage, bytes);
  }
}

const at::Tensor& resize_(const at::Tensor& self,
                          at::IntArrayRef sizes,
                          std::optional<at::MemoryFormat> format) {
  const bool is_channels_last = format == at::MemoryFormat::ChannelsLast;
  const std::vector<std::int64_t> strides =
      is_channels_last ? c10::get_channels_last_strides_2d(sizes) : plain_strides(sizes);
  grow(self.storage(),
       at::detail::computeStorageNbytes(sizes, strides, self.itemsize(), self.storage_offset()));
  self.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return self;
}

at::Tensor& set_storage(at::Tensor& self,
                        c10::Storage storage,
                        std::int64_t offset,
                        at::IntArrayRef sizes,
                        at::IntArrayRef strides) {
  const std::vector<std::int64_t> all_strides =
      strides.empty() ? plain_strides(sizes) : strides.vec();
  grow(storage,
       at::detail::computeStorageNbytes(
           sizes, all_strides, self.itemsize(), static_cast<std::size_t>(offset)));
  at::TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  impl->set_storage_offset(offset);
  impl->set_sizes_and_strides(sizes, all_strides);
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, c10::Storage storage) {
  const auto numel = static_cast<std::int64_t>(storage.nbytes() / self.itemsize());
  return set_storage(self, std::move(storage), 0, {numel}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage(
      self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_empty(at::Tensor& self) {
  return set_storage(self, at::empty({0}, self.options()).storage(), 0, {0}, {});
}

}  // namespace

void add_storage_operators(torch::Library& aten) {
  aten.impl("empty.memory_format", empty);
  aten.impl("empty_strided", empty_strided);
  aten.impl("as_strided", at::native::as_strided_tensorimpl);
  aten.impl("view", at::native::view);
  aten.impl("_reshape_alias", at::native::_reshape_alias);
  aten.impl("unfold", at::native::unfold);
  aten.impl("view_as_real", at::native::view_as_real);
  aten.impl("view_as_complex", at::native::view_as_complex);
  aten.impl("resize_", resize_);
  aten.impl("set_", set_empty);
  aten.impl("set_.source_Tensor", set_tensor);
  aten.impl("set_.source_Storage", set_whole_storage);
  aten.impl("set_.source_Storage_storage_offset", set_storage);
}

}  // namespace sim
