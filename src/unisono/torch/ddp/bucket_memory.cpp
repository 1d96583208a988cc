#include "unisono/torch/ddp/bucket_memory.h"

#include <cstddef>
#include <iterator>
#include <map>

#include <ATen/core/Tensor.h>

#include "unisono/base/buffer.h"
#include "unisono/base/mutex.h"

namespace unisono::ddp {
namespace {

struct Registry {
  Mutex mutex;
  std::map<const std::byte*, const std::byte*> ends
      UNISONO_GUARDED_BY(mutex);  // of buckets, by their begin
};

Registry& registry() {
  static Registry the_registry;
  return the_registry;
}

}  // namespace

BucketMemory::BucketMemory(const Buffer& buffer) : begin_(buffer.data) {
  const auto* const begin = static_cast<const std::byte*>(begin_);
  Registry& all = registry();
  const MutexLock lock(all.mutex);
  all.ends[begin] = begin + buffer.n_bytes();
}

BucketMemory::~BucketMemory() {
  Registry& all = registry();
  const MutexLock lock(all.mutex);
  all.ends.erase(static_cast<const std::byte*>(begin_));
}

bool is_in_a_bucket(const at::Tensor& tensor) {
  const auto* const data = static_cast<const std::byte*>(tensor.const_data_ptr());
  Registry& all = registry();
  const MutexLock lock(all.mutex);
  const auto next = all.ends.upper_bound(data);
  return next != all.ends.begin() && data < std::prev(next)->second;
}

}  // namespace unisono::ddp
