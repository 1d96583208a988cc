#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "unisono/base/buffer.h"

namespace unisono::engine::nccl {

/// Handles of the driver's API, declared here so that no CUDA header is required.
using CudaContext = void*;
using CudaStream = void*;  ///< cudaStream_t of CUDA's runtime and of NCCL.
using CudaEvent = void*;
using CudaAddress = unsigned long long;
using CudaUuid = std::array<unsigned char, 16>;

/// CUDA_ERROR_NOT_READY: the result of a query for an event that has not occurred.
inline constexpr int kCudaNotReady = 600;

/// NVIDIA's libcuda.so.1: the version of CUDA and the functions that this project uses. The
/// functions are the same in all versions since CUDA 11.0, and return 0 on success.
struct CudaDriver {
  int cuda_version;  ///< Newest CUDA that the driver supports: 12040 for CUDA 12.4.
  int (*init)(unsigned flags);
  int (*error_text)(int error, const char** text);
  int (*count)(int* n_devices);
  int (*device)(int* device, int index);
  int (*uuid)(CudaUuid* uuid, int device);
  /// Returns the device's primary context, which CUDA's runtime uses too.
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

/// Returns the driver. The first call loads and initializes it for the lifetime of the process.
/// Thread-safe.
///
/// Throws Error(kNotFound) with the loader's reason, Error(kIncompatible) with file, version and
/// remedy if the driver is too old, Error(kSystem) if the driver does not start.
[[nodiscard]] const CudaDriver& cuda_driver();

/// Returns "12.4" for CudaDriver::cuda_version.
[[nodiscard]] std::string format_cuda_version(int version);

/// Throws Error(kSystem) "`what`: the driver's text" unless `result` is 0.
void check_cuda(const CudaDriver& driver, int result, const char* what);

/// Returns the number of GPUs that CUDA shows to this process. Throws Error(kSystem).
[[nodiscard]] int count_gpus();

/// Throws Error(kInvalidArgument) unless cuda:`index` exists: "cuda:4 does not exist: this
/// process has 4 GPUs, cuda:0 to cuda:3; ...".
void check_exists(int index);

/// A GPU's primary context, shared with users of CUDA's runtime, such as PyTorch. The object holds
/// a reference to the context.
class GpuContext {
 public:
  /// Throws like check_exists(), and Error(kSystem) if the GPU fails.
  explicit GpuContext(int index);

  ~GpuContext();

  GpuContext(const GpuContext&) = delete;
  GpuContext& operator=(const GpuContext&) = delete;
  GpuContext(GpuContext&&) = delete;
  GpuContext& operator=(GpuContext&&) = delete;

  [[nodiscard]] int index() const { return index_; }

  [[nodiscard]] const CudaUuid& uuid() const { return uuid_; }

  [[nodiscard]] CudaContext get() const { return context_; }

 private:
  const CudaDriver& driver_;
  int index_;
  int device_ = 0;
  CudaUuid uuid_ = {};
  CudaContext context_ = nullptr;
};

/// Makes a GPU the current GPU of the calling thread, until the end of the scope.
class CurrentGpu {
 public:
  /// Pushes the context on the thread's stack of contexts. Throws Error(kSystem).
  explicit CurrentGpu(const GpuContext& context);

  ~CurrentGpu();

  CurrentGpu(const CurrentGpu&) = delete;
  CurrentGpu& operator=(const CurrentGpu&) = delete;
  CurrentGpu(CurrentGpu&&) = delete;
  CurrentGpu& operator=(CurrentGpu&&) = delete;

 private:
  const CudaDriver& driver_;
};

/// A stream of a group. The caller must make the GPU current before each call; the GPU must outlive
/// the stream.
class GpuStream {
 public:
  /// Makes a stream on the current GPU that does not wait for the default stream. Throws
  /// Error(kSystem).
  GpuStream();

  ~GpuStream();

  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;
  GpuStream(GpuStream&&) = delete;
  GpuStream& operator=(GpuStream&&) = delete;

  [[nodiscard]] CudaStream get() const { return stream_; }

  /// Orders the streams: work passed to the stream after this call starts after all work that was
  /// passed to the device's default stream before.
  void follow_default_stream();

  /// From this call on, is_done() refers to the work that was passed to the stream before this
  /// call.
  void mark();

  /// Returns whether the marked work is complete. Does not wait. Throws Error(kSystem) if work on
  /// the stream has failed.
  [[nodiscard]] bool is_done() const;

 private:
  explicit GpuStream(const CudaDriver& driver) : driver_(driver) {}

  const CudaDriver& driver_;
  CudaStream stream_ = nullptr;
  CudaEvent before_ = nullptr;
  CudaEvent after_ = nullptr;
};

/// Returns memory of cuda:`index`, freed with the last copy of the buffer.
[[nodiscard]] Buffer allocate_on_gpu(int index, std::int64_t count, DType dtype);

}  // namespace unisono::engine::nccl
