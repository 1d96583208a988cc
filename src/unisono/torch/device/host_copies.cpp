#include "unisono/torch/device/host_copies.h"

#include <chrono>

#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "unisono/base/deadline.h"
#include "unisono/torch/device/device_stream.h"

namespace unisono {
namespace {

// Time for the present work of a device, by default that of an operation.
constexpr std::chrono::minutes kDeviceTimeout{30};

}  // namespace

at::Tensor HostCopies::add(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu()) {
    return tensor;
  }
  const at::Tensor source = tensor.detach();
  const at::Tensor copy =
      at::empty_like(source, source.options().device(at::kCPU).pinned_memory(true));
  copy.copy_(source, /*non_blocking=*/true);
  copied_.push_back(record_current(source.device()));
  sources_.push_back(source);
  return copy;
}

void HostCopies::wait() {
  for (const c10::Event& copied : copied_) {
    await_event(copied, Deadline::after(kDeviceTimeout));
  }
  copied_.clear();
  sources_.clear();
}

c10::Stream current_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

void synchronize_current(at::Device device) {
  await_event(record_current(device), Deadline::after(kDeviceTimeout));
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
