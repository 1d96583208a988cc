#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "unisono/data/samplers/sampler.h"

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
  /// as_tensors() copies a DataLoader's batches to page-locked memory, from which an accelerator
  /// copies without waiting. Without an accelerator there is no such copy, which the log states
  /// once.
  bool pin_memory = false;
  /// Called once in each worker, with its number from 0, before it loads anything.
  std::function<void(int worker)> worker_init_fn = nullptr;
};

/// Where a loader is in a pass: a value to save, and to go on from in another process.
struct LoaderState {
  std::int64_t n_taken = 0;  ///< Batches that next() has returned.
  std::uint64_t order = 0;   ///< A hash of all the pass's batches, to recognize it by.

  friend bool operator==(const LoaderState&, const LoaderState&) = default;
};

namespace data {

/// One batch while it is loaded.
class BatchInHand {
 public:
  BatchInHand(std::span<const std::int64_t> indices, const std::atomic<bool>& is_dropped)
      : indices_(indices), is_dropped_(&is_dropped) {}

  /// Samples in the batch.
  [[nodiscard]] std::size_t size() const { return indices_.size(); }

  /// The index of the sample at `place`, which is to be loaded next; nothing once nobody wants the
  /// batch any more.
  [[nodiscard]] std::optional<std::int64_t> begin_sample(std::size_t place);

  /// The samples are loaded: what fails from now on is the batch.
  void end_samples() { current_.reset(); }

  /// The sample that is being loaded.
  [[nodiscard]] std::optional<std::int64_t> current() const { return current_; }

 private:
  std::span<const std::int64_t> indices_;
  const std::atomic<bool>* is_dropped_;  // set by the consumer, relaxed: nothing is handed over
  std::optional<std::int64_t> current_;
};

/// Loads a batch, in any thread; null where begin_sample() gave nothing.
using MakeBatch = std::function<std::shared_ptr<void>(BatchInHand&)>;

}  // namespace data

/// What loaders have in common: passes over a data set, whose batches worker threads load ahead.
///
/// Batches come in the order of the pass, however many workers there are. Workers live as long as
/// the loader, through all its passes. It keeps at most num_workers * prefetch_factor batches
/// beside those that the caller holds. One thread calls its members.
class LoaderBase {
 public:
  LoaderBase(const LoaderBase&) = delete;
  LoaderBase& operator=(const LoaderBase&) = delete;
  LoaderBase(LoaderBase&&) = delete;
  LoaderBase& operator=(LoaderBase&&) = delete;

  /// Begins a pass over the samples `indices`, in batches of the options' size; what is left of the
  /// pass before is dropped. With `from`, which the state() of an equal pass has returned, the
  /// batches that were taken then are not loaded again.
  ///
  /// Throws Error(kInvalidArgument) for an index outside the data set, and for a state of a pass of
  /// other batches.
  void start(std::vector<std::int64_t> indices, const std::optional<LoaderState>& from = {});

  /// The same with ready batches. The options' batch_size is 1 and drop_last false, or it throws
  /// Error(kInvalidArgument), as it does for an empty batch.
  void start_batches(const std::vector<std::vector<std::int64_t>>& batches,
                     const std::optional<LoaderState>& from = {});

  /// Begins a pass over an epoch of a sampler.
  template <class Source>
    requires Sampler<std::remove_reference_t<Source>>
  void start(Source&& sampler, const std::optional<LoaderState>& from = {}) {
    start(sampler.indices(), from);
  }

  template <class Source>
    requires SamplerOfBatches<std::remove_reference_t<Source>>
  void start(Source&& sampler, const std::optional<LoaderState>& from = {}) {
    start_batches(sampler.batches(), from);
  }

  /// Number of batches in the pass, with those that it began behind.
  [[nodiscard]] std::int64_t n_batches() const;

  /// Where the pass is. Whatever is loaded ahead does not count.
  ///
  /// Throws Error(kInvalidArgument) before the first start().
  [[nodiscard]] LoaderState state() const;

 protected:
  /// `make` is called by workers until this is destroyed: it holds shares of all that it uses.
  ///
  /// Throws Error: kInvalidArgument for options that make no sense, kSystem when a thread can't be
  /// started.
  LoaderBase(std::int64_t dataset_size, data::MakeBatch make, const DataLoaderOptions& options);

  /// Also ends in the middle of a pass: waits only for the samples that are being loaded.
  ~LoaderBase();

  /// The next batch of the pass, or null when it has ended. Throws as DataLoader::next() says.
  [[nodiscard]] std::shared_ptr<void> take();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace unisono
