#pragma once

#include <span>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"

#include "support/ranks.h"

namespace unisono::test {

/// Loads the fake libraries under NVIDIA's names, with `n_gpus` GPUs. Ends the program after an
/// error.
void load_fakes(int n_gpus);

/// Returns a world of a single node. Its groups use NCCL.
[[nodiscard]] World nccl_world(int world_size);

/// Returns the elements as a buffer on a GPU: memory of the fake GPU is host memory.
template <class T>
[[nodiscard]] Buffer on_gpu(std::span<T> values, int index) {
  Buffer buffer = as_buffer(values);
  buffer.device = {.type = DeviceType::kCuda, .index = index};
  return buffer;
}

template <class T>
[[nodiscard]] Buffer on_gpu(std::vector<T>& values, int index) {
  return on_gpu(std::span<T>(values), index);
}

/// Sets a fault of the fake libraries until the end of the scope.
class GpuFault {
 public:
  explicit GpuFault(const char* name);
  ~GpuFault();
  GpuFault(const GpuFault&) = delete;
  GpuFault& operator=(const GpuFault&) = delete;
  GpuFault(GpuFault&&) = delete;
  GpuFault& operator=(GpuFault&&) = delete;
};

/// Returns the number of aborted communicators.
[[nodiscard]] int n_aborted();

}  // namespace unisono::test
