#pragma once

#include <span>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"

#include "support/ranks.h"

namespace unisono::test {

/// Has the loader know the fake libraries by NVIDIA's names, with so many GPUs; ends the program if
/// it can't.
void load_fakes(int n_gpus);

/// A world of one node whose groups are NCCL's.
[[nodiscard]] World nccl_world(int world_size);

/// The elements as a buffer on a GPU: the fake one's memory is the host's.
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

/// Sets what the fake NCCL does wrong, until the end of the scope.
class NcclFault {
 public:
  explicit NcclFault(const char* name);
  ~NcclFault();
  NcclFault(const NcclFault&) = delete;
  NcclFault& operator=(const NcclFault&) = delete;
  NcclFault(NcclFault&&) = delete;
  NcclFault& operator=(NcclFault&&) = delete;
};

/// How many communicators have been aborted.
[[nodiscard]] int n_aborted();

}  // namespace unisono::test
