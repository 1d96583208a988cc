#include "unisono/torch/tensor/batch_tensors.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/Context.h>

#include "unisono/base/buffer.h"
#include "unisono/base/dtype.h"
#include "unisono/data/batch.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono {

BatchTensors as_tensors(Batch batch) {
  std::vector<std::int64_t> sizes{batch.size()};
  sizes.insert(sizes.end(), batch.sample_shape().begin(), batch.sample_shape().end());
  // Shared by the two tensors.
  const auto shared = std::make_shared<Batch>(std::move(batch));
  const Buffer samples{.data = shared->bytes().data(), .dtype = shared->dtype(), .owner = shared};
  const Buffer labels{.data = shared->labels().data(), .dtype = DType::kInt64, .owner = shared};
  BatchTensors tensors{.samples = as_tensor(samples, 0, sizes, contiguous_strides(sizes)),
                       .labels = as_tensor(labels, 0, {shared->size()}, {1})};
  if (shared->pin_memory() && at::hasCUDA()) {
    return {.samples = tensors.samples.pin_memory(), .labels = tensors.labels.pin_memory()};
  }
  return tensors;
}

}  // namespace unisono
