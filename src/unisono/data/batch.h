#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"

namespace unisono::data {

/// Shape and type of a batch's samples, equal for all batches of a loader.
struct SampleFormat {
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> shape;
  std::size_t n_bytes = 0;
  bool pin_memory = false;  ///< Value of the loader's option.
};

/// Memory of a batch.
struct BatchStorage {
  std::vector<std::byte> samples;
  std::vector<std::int64_t> labels;
};

/// Keeps the memory of released batches for later batches.
///
/// A loader and its batches share the object, because a batch may outlive the loader. Thread-safe.
/// take() throws std::bad_alloc only.
class BatchPool {
 public:
  /// Keeps `max_kept` unused blocks at most.
  BatchPool(SampleFormat format, std::size_t max_kept);
  ~BatchPool();

  BatchPool(const BatchPool&) = delete;
  BatchPool& operator=(const BatchPool&) = delete;
  BatchPool(BatchPool&&) = delete;
  BatchPool& operator=(BatchPool&&) = delete;

  [[nodiscard]] const SampleFormat& format() const { return format_; }

  /// Returns memory for `n_samples`, a kept block if possible.
  [[nodiscard]] std::unique_ptr<BatchStorage> take(std::size_t n_samples);

  /// Keeps the block for a later batch, or frees it if enough blocks are kept.
  void give_back(std::unique_ptr<BatchStorage> storage) noexcept;

  /// Returns the number of kept blocks.
  [[nodiscard]] std::size_t n_kept() const;

 private:
  struct KeptBlocks;

  const SampleFormat format_;
  const std::unique_ptr<KeptBlocks> kept_;
};

/// Samples of a data set, contiguous in memory, with their labels.
///
/// Owns its memory, which the destructor returns to the loader's pool for another batch. A batch
/// may outlive the loader. After a move only destruction and assignment are allowed. Not
/// thread-safe.
class Batch {
 public:
  /// Takes memory for `n_samples` samples from the pool. The content is undefined until the loader
  /// has filled the batch.
  Batch(std::shared_ptr<BatchPool> pool, std::size_t n_samples);
  ~Batch();

  Batch(Batch&& other) noexcept = default;
  Batch& operator=(Batch&& other) noexcept;
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  /// Returns the number of samples.
  [[nodiscard]] std::int64_t size() const {
    return static_cast<std::int64_t>(storage_->labels.size());
  }

  [[nodiscard]] DType dtype() const { return pool_->format().dtype; }

  /// Returns the shape of a sample, for example {1, 28, 28}.
  [[nodiscard]] const std::vector<std::int64_t>& sample_shape() const {
    return pool_->format().shape;
  }

  /// Returns the loader's option pin_memory: the conversion to tensors copies to page-locked memory
  /// if an accelerator is present.
  [[nodiscard]] bool pin_memory() const { return pool_->format().pin_memory; }

  /// Returns the bytes of all samples.
  [[nodiscard]] std::span<std::byte> bytes() const { return storage_->samples; }

  /// Returns the bytes of a sample.
  [[nodiscard]] std::span<std::byte> sample_bytes(std::size_t place) const {
    return bytes().subspan(place * pool_->format().n_bytes, pool_->format().n_bytes);
  }

  /// Returns all samples as elements, for example values<float>().
  ///
  /// Throws Error(kInvalidArgument) if T is not the element type.
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
  std::shared_ptr<BatchPool> pool_;
  std::unique_ptr<BatchStorage> storage_;
};

/// Samples of one shape and element type that can be fetched by index, each with a label.
///
/// The caller and its loaders share the object. Several threads may call all members at the same
/// time. load() may throw; the loader passes the error to the consumer.
class Dataset {
 public:
  Dataset() = default;
  Dataset(const Dataset&) = default;
  Dataset& operator=(const Dataset&) = default;
  Dataset(Dataset&&) = default;
  Dataset& operator=(Dataset&&) = default;
  virtual ~Dataset() = default;

  /// Returns the number of samples.
  [[nodiscard]] virtual std::int64_t size() const = 0;

  /// Returns the element type of a sample.
  [[nodiscard]] virtual DType dtype() const = 0;

  /// Returns the shape of a sample, for example {1, 28, 28}; equal for all samples.
  [[nodiscard]] virtual std::vector<std::int64_t> sample_shape() const = 0;

  /// Writes sample `index`, 0 <= index < size(), into all of `into` and returns its label.
  ///
  /// `into` has the size that dtype() and sample_shape() imply, and is aligned for the element
  /// type. The consumer of the batch receives any exception.
  [[nodiscard]] virtual std::int64_t load(std::int64_t index, std::span<std::byte> into) const = 0;
};

}  // namespace unisono::data
