#include "unisono/engine/nccl/gpu_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include "unisono/base/buffer.h"
#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/engine/nccl/cuda_driver.h"

namespace unisono::engine::nccl {
namespace {

constexpr unsigned kNonBlocking = 1;  // It does not wait for the default stream of itself.
constexpr unsigned kWithoutTiming = 2;

// CUDA's name for the device's default stream.
CudaStream default_stream() {
  return std::bit_cast<CudaStream>(std::uintptr_t{1});
}

}  // namespace

GpuContext::GpuContext(int index) : driver_(cuda_driver()), index_(index) {
  if (driver_.device(&device_, index) != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("there is no cuda:{} here; `unisono devices` lists the GPUs", index));
  }
  check_cuda(driver_, driver_.uuid(&uuid_, device_), "cuDeviceGetUuid");
  check_cuda(driver_, driver_.retain_context(&context_, device_), "cuDevicePrimaryCtxRetain");
}

GpuContext::~GpuContext() {
  (void)driver_.release_context(device_);
}

CurrentGpu::CurrentGpu(const GpuContext& context) : driver_(cuda_driver()) {
  check_cuda(driver_, driver_.push_context(context.get()), "cuCtxPushCurrent");
}

CurrentGpu::~CurrentGpu() {
  CudaContext context = nullptr;
  (void)driver_.pop_context(&context);
}

GpuStream::GpuStream() : driver_(cuda_driver()) {
  check_cuda(driver_, driver_.make_stream(&stream_, kNonBlocking), "cuStreamCreate");
  check_cuda(driver_, driver_.make_event(&before_, kWithoutTiming), "cuEventCreate");
  check_cuda(driver_, driver_.make_event(&after_, kWithoutTiming), "cuEventCreate");
}

GpuStream::~GpuStream() {
  (void)driver_.destroy_event(before_);
  (void)driver_.destroy_event(after_);
  (void)driver_.destroy_stream(stream_);
}

void GpuStream::follow_default_stream() {
  check_cuda(driver_, driver_.record(before_, default_stream()), "cuEventRecord");
  check_cuda(driver_, driver_.wait_for_event(stream_, before_, 0), "cuStreamWaitEvent");
}

void GpuStream::mark() {
  check_cuda(driver_, driver_.record(after_, stream_), "cuEventRecord");
}

bool GpuStream::is_done() const {
  const int result = driver_.query(after_);
  if (result == kCudaNotReady) {
    return false;
  }
  check_cuda(driver_, result, "cuEventQuery");
  return true;
}

Buffer allocate_on_gpu(int index, std::int64_t count, DType dtype) {
  if (count < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("allocate: a count of {} elements is negative", count));
  }
  if (count >
      std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(size_of(dtype))) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("allocate: a count of {} is more than any memory has room for", count));
  }
  Buffer buffer{
      .count = count, .dtype = dtype, .device = {.type = DeviceType::kCuda, .index = index}};
  const auto context = std::make_shared<GpuContext>(index);
  const CurrentGpu current(*context);
  const CudaDriver& driver = cuda_driver();
  CudaAddress address = 0;
  // There is no memory of no bytes.
  const auto n_bytes = static_cast<std::size_t>(std::max<std::int64_t>(buffer.n_bytes(), 1));
  check_cuda(driver, driver.allocate(&address, n_bytes), "cuMemAlloc");
  buffer.data = std::bit_cast<void*>(static_cast<std::uintptr_t>(address));
  buffer.owner = std::shared_ptr<void>(buffer.data, [context, address](void* /*data*/) {
    const CudaDriver& owner = cuda_driver();
    if (owner.push_context(context->get()) == 0) {
      CudaContext popped = nullptr;
      (void)owner.free(address);
      (void)owner.pop_context(&popped);
    }
  });
  return buffer;
}

}  // namespace unisono::engine::nccl
