#pragma once

#include <cstdint>

#include "unisono/base/buffer.h"
#include "unisono/base/dtype.h"
#include "unisono/engine/nccl/cuda_driver.h"

namespace unisono::engine::nccl {

/// A GPU's primary context, which programs of CUDA's runtime (PyTorch's, say) use as well.
class GpuContext {
 public:
  /// Throws Error(kInvalidArgument) if there is no cuda:`index`, Error(kSystem) if it fails.
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

/// Makes the GPU the calling thread's current one, until the end of the scope.
class CurrentGpu {
 public:
  explicit CurrentGpu(const GpuContext& context);

  ~CurrentGpu();

  CurrentGpu(const CurrentGpu&) = delete;
  CurrentGpu& operator=(const CurrentGpu&) = delete;
  CurrentGpu(CurrentGpu&&) = delete;
  CurrentGpu& operator=(CurrentGpu&&) = delete;

 private:
  const CudaDriver& driver_;
};

/// A stream of a group's own. The GPU is current in all calls, and outlives it.
class GpuStream {
 public:
  GpuStream();

  ~GpuStream();

  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;
  GpuStream(GpuStream&&) = delete;
  GpuStream& operator=(GpuStream&&) = delete;

  [[nodiscard]] CudaStream get() const { return stream_; }

  /// What the device's default stream was given before this call is done before what the stream is
  /// given after it.
  void follow_default_stream();

  /// From here on, is_done() is about what the stream was given before this call.
  void mark();

  /// Does not wait. Throws Error(kSystem) if something that the stream was given has failed.
  [[nodiscard]] bool is_done() const;

 private:
  const CudaDriver& driver_;
  CudaStream stream_ = nullptr;
  CudaEvent before_ = nullptr;
  CudaEvent after_ = nullptr;
};

/// Memory of cuda:`index`, which ends with the last copy of the buffer.
[[nodiscard]] Buffer allocate_on_gpu(int index, std::int64_t count, DType dtype);

}  // namespace unisono::engine::nccl
