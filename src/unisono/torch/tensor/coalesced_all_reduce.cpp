#include "unisono/torch/tensor/coalesced_all_reduce.h"

#include <cstddef>
#include <cstdint>

#include "unisono/torch/tensor/tensor.h"

namespace unisono {

void coalesced_all_reduce(ProcessGroup& group,
                          const std::vector<at::Tensor>& tensors,
                          const AllReduceOptions& options) {
  std::int64_t count = 0;
  for (const at::Tensor& tensor : tensors) {
    count += tensor.numel();
  }
  const at::Tensor flat = allocate_tensor(group, {count}, tensors.front().scalar_type());
  std::vector<at::Tensor> parts;
  std::int64_t offset = 0;
  for (const at::Tensor& tensor : tensors) {
    parts.push_back(flat.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
    parts.back().copy_(tensor);
    offset += tensor.numel();
  }
  all_reduce(group, flat, options);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    tensors[i].copy_(parts[i]);
  }
}

}  // namespace unisono
