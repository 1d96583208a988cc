#include "unisono/data/batch.h"

#include <utility>

#include "unisono/base/mutex.h"

namespace unisono::data {

struct BatchPool::KeptBlocks {
  // give_back() must not allocate.
  explicit KeptBlocks(std::size_t n_most) : max_kept(n_most) { blocks.reserve(n_most); }

  const std::size_t max_kept;
  Mutex mutex;
  std::vector<std::unique_ptr<BatchStorage>> blocks UNISONO_GUARDED_BY(mutex);
};

BatchPool::BatchPool(SampleFormat format, std::size_t max_kept)
    : format_(std::move(format)), kept_(std::make_unique<KeptBlocks>(max_kept)) {}

BatchPool::~BatchPool() = default;

std::unique_ptr<BatchStorage> BatchPool::take(std::size_t n_samples) {
  std::unique_ptr<BatchStorage> storage;
  {
    const MutexLock lock(kept_->mutex);
    if (!kept_->blocks.empty()) {
      storage = std::move(kept_->blocks.back());
      kept_->blocks.pop_back();
    }
  }
  if (storage == nullptr) {
    storage = std::make_unique<BatchStorage>();
  }
  storage->samples.resize(n_samples * format_.n_bytes);
  storage->labels.resize(n_samples);
  return storage;
}

void BatchPool::give_back(std::unique_ptr<BatchStorage> storage) noexcept {
  const MutexLock lock(kept_->mutex);
  if (kept_->blocks.size() < kept_->max_kept) {
    kept_->blocks.push_back(std::move(storage));
  }
}

std::size_t BatchPool::n_kept() const {
  const MutexLock lock(kept_->mutex);
  return kept_->blocks.size();
}

Batch::Batch(std::shared_ptr<BatchPool> pool, std::size_t n_samples)
    : pool_(std::move(pool)), storage_(pool_->take(n_samples)) {}

Batch::~Batch() {
  if (storage_ != nullptr) {
    pool_->give_back(std::move(storage_));
  }
}

Batch& Batch::operator=(Batch&& other) noexcept {
  if (this != &other) {
    if (storage_ != nullptr) {
      pool_->give_back(std::move(storage_));
    }
    pool_ = std::move(other.pool_);
    storage_ = std::move(other.storage_);
  }
  return *this;
}

}  // namespace unisono::data
