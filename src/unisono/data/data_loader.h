#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "unisono/data/batch.h"
#include "unisono/data/dataset.h"

namespace unisono {

struct DataLoaderOptions {
  std::int64_t batch_size = 1;
  /// Threads that load batches ahead; 0: next() loads them itself.
  int num_workers = 0;
  /// Leave out the last batch where it is smaller than the others.
  bool drop_last = false;
  /// Batches per worker that are loaded ahead of the consumer.
  int prefetch_factor = 2;
  /// Time that next() waits for the workers.
  std::chrono::nanoseconds timeout = std::chrono::minutes(30);
  /// Called once in each worker, with its number from 0, before it loads anything.
  std::function<void(int worker)> worker_init_fn = nullptr;
};

/// Loads batches of a data set, ahead of time where it has workers.
///
///     DataLoader loader(dataset, {.batch_size = 64, .num_workers = 2});
///     loader.start(sampler.indices());
///     while (std::optional<Batch> batch = loader.next()) { ... }
///
/// Batches come in the order of the indices, however many workers there are. Workers live as long
/// as the loader, through all its passes. It keeps at most num_workers * prefetch_factor batches
/// beside those that the caller holds. One thread calls its members.
class DataLoader {
 public:
  /// `dataset` is shared by the caller, this loader and its workers.
  ///
  /// Throws Error: kInvalidArgument for options that make no sense, kSystem when a thread can't be
  /// started.
  explicit DataLoader(std::shared_ptr<const Dataset> dataset,
                      const DataLoaderOptions& options = {});

  /// Also ends in the middle of a pass: waits only for the samples that are being loaded.
  ~DataLoader();

  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;
  DataLoader(DataLoader&&) = delete;
  DataLoader& operator=(DataLoader&&) = delete;

  /// Begins a pass over the samples `indices`; what is left of the pass before is dropped.
  ///
  /// Throws Error(kInvalidArgument) for an index outside the data set.
  void start(std::vector<std::int64_t> indices);

  /// Number of batches in the pass.
  [[nodiscard]] std::int64_t n_batches() const;

  /// The next batch of the pass, or nothing when it has ended.
  ///
  /// Throws Error: kInvalidArgument before the first start(); kTimeout; and what kept a sample of
  /// the batch from being loaded, with its index: the code is that of the Error that the data set
  /// threw, kCorruptData for other exceptions. The pass is over then and every next() throws the
  /// same, until start(). What worker_init_fn throws comes the same way, and for good.
  [[nodiscard]] std::optional<Batch> next();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace unisono
