#include "symmetric.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/tensor/tensor.h"

#include "bucket_gradients.h"
#include "errors.h"

namespace unisono::python {
namespace {

using Owner = std::shared_ptr<void>;

Buffer bytes_of(const c10::StorageImpl& storage) {
  // The buffer is used for reading only.
  return {.data = const_cast<void*>(storage.data()),
          .count = static_cast<std::int64_t>(storage.nbytes()),
          .dtype = DType::kUInt8};
}

void drop_owner(void* owner) {
  delete static_cast<Owner*>(owner);
}

// All tensors on the storage access elements through the storage, so a single exchange moves all
// tensors.
void move_storage(ProcessGroup& group, c10::StorageImpl& storage) {
  const Buffer old = bytes_of(storage);
  Buffer fresh = group.allocate(old.count, old.dtype);
  std::memcpy(fresh.data, old.data, storage.nbytes());
  auto owner = std::make_unique<Owner>(std::move(fresh.owner));
  storage.set_data_ptr_noswap({fresh.data, owner.release(), &drop_owner, c10::kCPU});
}

}  // namespace

at::Tensor symmetric_empty(ProcessGroup& group,
                           const std::vector<std::int64_t>& sizes,
                           at::ScalarType type) {
  return with_translated_errors([&] { return allocate_tensor(group, sizes, type); });
}

bool is_symmetric(const ProcessGroup& group, const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.device().is_cpu() && tensor.is_contiguous() &&
         group.is_symmetric({.data = const_cast<void*>(tensor.const_data_ptr()),
                             .count = static_cast<std::int64_t>(tensor.nbytes()),
                             .dtype = DType::kUInt8});
}

BucketMove move_buckets(ProcessGroup& group,
                        const c10d::Reducer& reducer,
                        BucketGradients* gradients) {
  BucketMove move;
  for (const c10d::GradBucket& bucket : reducer.get_grad_buckets(/*return_zero_tensors=*/false)) {
    const at::Tensor& flat = bucket.getBuffer();
    if (!flat.defined() || flat.layout() != at::kStrided) {
      continue;  // A sparse gradient has no bucket before the gradient exists.
    }
    ++move.n_buckets;
    c10::StorageImpl& storage = *flat.storage().unsafeGetStorageImpl();
    if (!flat.device().is_cpu()) {
      move.problem = "it is on " + flat.device().str();
    } else if (flat.storage().use_count() < 2) {
      // Only `flat` refers to the storage, so no gradient is written there.
      move.problem = "this release of torch hands out copies of its buckets";
    } else if (!group.is_symmetric(bytes_of(storage))) {
      try {
        move_storage(group, storage);
      } catch (const Error& error) {
        move.problem = error.what();
      }
    }
    if (gradients != nullptr) {
      gradients->add(bucket);
    }
    move.n_symmetric += group.is_symmetric(bytes_of(storage)) ? 1 : 0;
  }
  return move;
}

}  // namespace unisono::python
