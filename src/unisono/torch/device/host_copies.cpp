#include "unisono/torch/device/host_copies.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace unisono {

at::Tensor HostCopies::add(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu()) {
    return tensor;
  }
  const at::Tensor source = tensor.detach();
  const at::Tensor copy =
      at::empty_like(source, source.options().device(at::kCPU).pinned_memory(true));
  copy.copy_(source, /*non_blocking=*/true);
  copied_.emplace_back(source.device().type());
  copied_.back().record(current_stream(source.device()));
  sources_.push_back(source);
  return copy;
}

void HostCopies::wait() {
  for (const c10::Event& copied : copied_) {
    copied.synchronize();
  }
  copied_.clear();
  sources_.clear();
}

c10::Stream current_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

void follow(const c10::Stream& stream) {
  const c10::Stream current = current_stream(stream.device());
  if (current != stream) {
    c10::Event event(stream.device_type());
    event.record(stream);
    event.block(current);
  }
}

void synchronize_current(at::Device device) {
  c10::Event event(device.type());
  event.record(current_stream(device));
  event.synchronize();
}

bool has_elements(at::Device device) {
  return device.is_cpu() || at::isAccelerator(device.type());
}

at::Tensor memory_of(const at::Tensor& tensor) {
  return tensor.detach().as_strided({tensor.numel()}, {1}).view(at::kByte);
}

at::Tensor on_host(const at::Tensor& tensor) {
  HostCopies copies;
  at::Tensor copy = copies.add(tensor);
  copies.wait();
  return copy;
}

}  // namespace unisono
