#include "unisono/data/batch.h"

#include <utility>

namespace unisono::data {

BatchPool::BatchPool(SampleFormat format, std::size_t max_kept)
    : format_(std::move(format)), max_kept_(max_kept) {
  // give_back() must not allocate.
  kept_.reserve(max_kept_);
}

std::unique_ptr<BatchStorage> BatchPool::take(std::size_t n_samples) {
  std::unique_ptr<BatchStorage> storage;
  {
    const MutexLock lock(mutex_);
    if (!kept_.empty()) {
      storage = std::move(kept_.back());
      kept_.pop_back();
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
  const MutexLock lock(mutex_);
  if (kept_.size() < max_kept_) {
    kept_.push_back(std::move(storage));
  }
}

std::size_t BatchPool::n_kept() const {
  const MutexLock lock(mutex_);
  return kept_.size();
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
