#include "unisono/engine/nccl/cuda_driver.h"

#include <fmt/format.h>

#include "unisono/base/error.h"
#include "unisono/base/loaded_library.h"

namespace unisono::engine::nccl {
namespace {

CudaDriver load_driver() {
  const LoadedLibrary library("libcuda.so.1");
  CudaDriver driver{};
  library.find("cuInit", driver.init);
  library.find("cuGetErrorString", driver.error_text);
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
  check_cuda(driver, driver.init(0), "NVIDIA's driver does not start");
  return driver;
}

}  // namespace

const CudaDriver& cuda_driver() {
  static const CudaDriver driver = load_driver();
  return driver;
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

}  // namespace unisono::engine::nccl
