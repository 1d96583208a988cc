#pragma once

#include <array>
#include <cstddef>

namespace unisono::engine::nccl {

using CudaContext = void*;
using CudaStream = void*;  ///< What CUDA's runtime, and so NCCL, calls cudaStream_t.
using CudaEvent = void*;
using CudaAddress = unsigned long long;
using CudaUuid = std::array<unsigned char, 16>;

inline constexpr int kCudaNotReady = 600;

/// What this project needs of NVIDIA's libcuda.so.1, which is the same for all versions of CUDA.
/// The functions return 0 where they succeed.
struct CudaDriver {
  int (*init)(unsigned flags);
  int (*error_text)(int error, const char** text);
  int (*device)(int* device, int index);
  int (*uuid)(CudaUuid* uuid, int device);
  int (*retain_context)(CudaContext* context, int device);
  int (*release_context)(int device);
  int (*push_context)(CudaContext context);
  int (*pop_context)(CudaContext* context);
  int (*make_stream)(CudaStream* stream, unsigned flags);
  int (*destroy_stream)(CudaStream stream);
  int (*make_event)(CudaEvent* event, unsigned flags);
  int (*destroy_event)(CudaEvent event);
  int (*record)(CudaEvent event, CudaStream stream);
  int (*query)(CudaEvent event);
  int (*wait_for_event)(CudaStream stream, CudaEvent event, unsigned flags);
  int (*allocate)(CudaAddress* address, std::size_t n_bytes);
  int (*free)(CudaAddress address);
};

/// Loads and initializes it, when it is first called, for good. Thread-safe.
///
/// Throws Error(kNotFound) with the loader's reason, Error(kSystem) if the driver does not start.
[[nodiscard]] const CudaDriver& cuda_driver();

/// Throws Error(kSystem) "`what`: the driver's text" unless `result` is 0.
void check_cuda(const CudaDriver& driver, int result, const char* what);

}  // namespace unisono::engine::nccl
