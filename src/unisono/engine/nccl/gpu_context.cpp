#include "unisono/engine/nccl/gpu_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <memory>
#include <optional>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/base/process.h"

namespace unisono::engine::nccl {
namespace {

void find_functions(const LoadedLibrary& library, CudaDriver& driver) {
  library.find("cuInit", driver.init);
  library.find("cuGetErrorString", driver.error_text);
  library.find("cuDeviceGetCount", driver.count);
  library.find("cuDeviceGet", driver.device);
  library.find("cuDeviceGetUuid", driver.uuid);
  library.find("cuDevicePrimaryCtxRetain", driver.retain_context);
  library.find("cuDevicePrimaryCtxRelease_v2", driver.release_context);
  library.find("cuCtxPushCurrent_v2", driver.push_context);
  library.find("cuCtxPopCurrent_v2", driver.pop_context);
  library.find("cuStreamCreate", driver.make_stream);
  library.find("cuStreamDestroy_v2", driver.destroy_stream);
  library.find("cuEventCreate", driver.make_event);
  library.find("cuEventDestroy_v2", driver.destroy_event);
  library.find("cuEventRecord", driver.record);
  library.find("cuEventQuery", driver.query);
  library.find("cuStreamWaitEvent", driver.wait_for_event);
  library.find("cuMemAlloc_v2", driver.allocate);
  library.find("cuMemFree_v2", driver.free);
}

CudaDriver load_driver() {
  const LoadedLibrary library("libcuda.so.1");
  CudaDriver driver{};
  int (*get_version)(int* version) = nullptr;
  library.find("cuDriverGetVersion", get_version);
  (void)get_version(&driver.cuda_version);
  try {
    find_functions(library, driver);
  } catch (const Error& error) {
    throw Error(ErrorCode::kIncompatible,
                fmt::format("NVIDIA's driver is too old: {} and supports CUDA {}; install a driver "
                            "for CUDA 11.0 or newer (release 450 or newer)",
                            error.what(),
                            format_cuda_version(driver.cuda_version)));
  }
  check_cuda(driver, driver.init(0), "NVIDIA's driver does not start");
  return driver;
}

}  // namespace

const CudaDriver& cuda_driver() {
  static const CudaDriver driver = load_driver();
  return driver;
}

std::string format_cuda_version(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

void check_cuda(const CudaDriver& driver, int result, const char* what) {
  if (result == 0) {
    return;
  }
  const char* text = nullptr;
  (void)driver.error_text(result, &text);
  throw Error(
      ErrorCode::kSystem,
      fmt::format("{}: {} (error {})", what, text == nullptr ? "unknown error" : text, result));
}

int count_gpus() {
  const CudaDriver& driver = cuda_driver();
  int n_gpus = 0;
  check_cuda(driver, driver.count(&n_gpus), "cuDeviceGetCount");
  return n_gpus;
}

void check_exists(int index) {
  const int n_gpus = count_gpus();
  if (index >= 0 && index < n_gpus) {
    return;
  }
  std::string shown = n_gpus == 0 ? "no GPU" : "1 GPU, cuda:0";
  if (n_gpus > 1) {
    shown = fmt::format("{} GPUs, cuda:0 to cuda:{}", n_gpus, n_gpus - 1);
  }
  const std::optional<std::string> visible = process_environment()("CUDA_VISIBLE_DEVICES");
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("cuda:{} does not exist: this process has {}{}; `unisono devices` lists the "
                  "GPUs; choose the device by LOCAL_RANK",
                  index,
                  shown,
                  visible ? fmt::format(" (CUDA_VISIBLE_DEVICES=\"{}\")", *visible) : ""));
}

namespace {

constexpr unsigned kNonBlocking = 1;  // The stream does not implicitly wait for the default stream.
constexpr unsigned kWithoutTiming = 2;

// Returns CUDA's handle of the device's default stream.
CudaStream default_stream() {
  return std::bit_cast<CudaStream>(std::uintptr_t{1});
}

}  // namespace

GpuContext::GpuContext(int index) : driver_(cuda_driver()), index_(index) {
  check_exists(index);
  check_cuda(driver_, driver_.device(&device_, index), "cuDeviceGet");
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

// The other constructor completes the object, so that the destructor runs if a call here fails.
GpuStream::GpuStream() : GpuStream(cuda_driver()) {
  check_cuda(driver_, driver_.make_stream(&stream_, kNonBlocking), "cuStreamCreate");
  check_cuda(driver_, driver_.make_event(&before_, kWithoutTiming), "cuEventCreate");
  check_cuda(driver_, driver_.make_event(&after_, kWithoutTiming), "cuEventCreate");
}

GpuStream::~GpuStream() {
  for (CudaEvent const event : {before_, after_}) {
    if (event != nullptr) {
      (void)driver_.destroy_event(event);
    }
  }
  if (stream_ != nullptr) {
    (void)driver_.destroy_stream(stream_);
  }
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
  // CUDA can't allocate zero bytes.
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
