#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"

namespace unisono {

namespace data {

/// Shape of a batch's samples; the same for all batches of a loader.
struct SampleFormat {
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> shape;
  std::size_t n_bytes = 0;
  bool pin_memory = false;  ///< As the loader's options have it.
};

struct BatchStorage {
  std::vector<std::byte> samples;
  std::vector<std::int64_t> labels;
};

/// Keeps the memory of batches that are no longer used for the next ones. Thread-safe. Shared by a
/// loader and its batches, since a batch may outlive the loader.
class BatchPool {
 public:
  /// Keeps at most `max_kept` unused ones.
  BatchPool(SampleFormat format, std::size_t max_kept);

  [[nodiscard]] const SampleFormat& format() const { return format_; }

  /// Memory for `n_samples`.
  [[nodiscard]] std::unique_ptr<BatchStorage> take(std::size_t n_samples);

  void give_back(std::unique_ptr<BatchStorage> storage) noexcept;

  /// Unused memory blocks that wait for the next batch.
  [[nodiscard]] std::size_t n_kept() const;

 private:
  const SampleFormat format_;
  const std::size_t max_kept_;
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<BatchStorage>> kept_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace data

/// Some samples of a data set, one after the other in memory, and their labels.
///
/// Owns its memory, which goes back to the loader for another batch when this is destroyed; it may
/// outlive the loader. After a move only destruction and assignment are allowed.
class Batch {
 public:
  Batch(std::shared_ptr<data::BatchPool> pool, std::size_t n_samples);
  ~Batch();

  Batch(Batch&& other) noexcept = default;
  Batch& operator=(Batch&& other) noexcept;
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  /// Number of samples.
  [[nodiscard]] std::int64_t size() const {
    return static_cast<std::int64_t>(storage_->labels.size());
  }

  [[nodiscard]] DType dtype() const { return pool_->format().dtype; }

  /// Shape of one sample, e.g. {1, 28, 28}.
  [[nodiscard]] const std::vector<std::int64_t>& sample_shape() const {
    return pool_->format().shape;
  }

  /// Whether as_tensors() copies to page-locked memory where there is an accelerator.
  [[nodiscard]] bool pin_memory() const { return pool_->format().pin_memory; }

  /// All samples.
  [[nodiscard]] std::span<std::byte> bytes() const { return storage_->samples; }

  /// One sample.
  [[nodiscard]] std::span<std::byte> sample_bytes(std::size_t place) const {
    return bytes().subspan(place * pool_->format().n_bytes, pool_->format().n_bytes);
  }

  /// All samples as elements, e.g. values<float>().
  ///
  /// Throws Error(kInvalidArgument) when T is not the element type.
  template <class T>
  [[nodiscard]] std::span<T> values() const {
    if (dtype_of<T>() != dtype()) {
      throw Error(ErrorCode::kInvalidArgument,
                  std::string("Batch: values of type ") + to_string(dtype_of<T>()) +
                      " asked for, but its samples are " + to_string(dtype()));
    }
    return {reinterpret_cast<T*>(bytes().data()), bytes().size() / sizeof(T)};
  }

  [[nodiscard]] std::span<std::int64_t> labels() const { return storage_->labels; }

 private:
  std::shared_ptr<data::BatchPool> pool_;
  std::unique_ptr<data::BatchStorage> storage_;
};

}  // namespace unisono
