#pragma once

#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/data/batch.h"
#include "unisono/data/samplers/sampler.h"

namespace unisono {

/// Options of DataLoader and CollatingLoader: `batch_size` is the number of samples of a batch.
/// Names and defaults follow PyTorch.
struct DataLoaderOptions {
  std::int64_t batch_size = 1;
  /// Threads that load batches ahead; 0: next() loads in the calling thread.
  int num_workers = 0;
  /// Drops the last batch if it is smaller than the other batches.
  bool drop_last = false;
  /// Batches per worker that are loaded ahead of the consumer.
  int prefetch_factor = 2;
  /// Longest time that next() waits for the workers.
  std::chrono::nanoseconds timeout = std::chrono::minutes(30);
  /// Requests page-locked memory: the conversion of a DataLoader's batches to tensors copies to
  /// page-locked memory, from which an accelerator copies asynchronously. Without an accelerator
  /// there is no such copy, which the log states once.
  bool pin_memory = false;
  /// Called once in each worker, with the number of the worker from 0, before the worker loads a
  /// batch.
  std::function<void(int worker)> worker_init_fn = nullptr;
};

/// Position of a loader in a pass: a value that another process can continue from.
struct LoaderState {
  std::int64_t n_taken = 0;  ///< Batches that next() has returned.
  std::uint64_t order = 0;   ///< Hash of all batches of the pass, to recognize the pass.

  friend bool operator==(const LoaderState&, const LoaderState&) = default;
};

namespace data {

/// A batch while it is being loaded. Used by the thread that loads the batch.
class BatchInHand {
 public:
  /// `indices` are the samples of the batch. `is_dropped` becomes true when the loader no longer
  /// needs the batch. Both must outlive the object.
  BatchInHand(std::span<const std::int64_t> indices, const std::atomic<bool>& is_dropped)
      : indices_(indices), is_dropped_(&is_dropped) {}

  /// Returns the number of samples in the batch.
  [[nodiscard]] std::size_t size() const { return indices_.size(); }

  /// Returns the index of the sample at `place`, which the caller loads next. Returns std::nullopt
  /// once the batch is no longer needed.
  [[nodiscard]] std::optional<std::int64_t> begin_sample(std::size_t place);

  /// All samples are loaded; a later error is an error of the batch, not of a sample.
  void end_samples() { current_.reset(); }

  /// Returns the index of the sample that is being loaded.
  [[nodiscard]] std::optional<std::int64_t> current() const { return current_; }

 private:
  std::span<const std::int64_t> indices_;
  const std::atomic<bool>* is_dropped_;  // set by the consumer; relaxed: publishes no other data
  std::optional<std::int64_t> current_;
};

/// Loads a batch, in any thread. Returns null if begin_sample() returned std::nullopt.
using MakeBatch = std::function<std::shared_ptr<void>(BatchInHand&)>;

}  // namespace data

/// Base of the loaders: passes over a data set, with worker threads that load batches ahead.
///
/// Batches arrive in the order of the pass, for any number of workers. The workers live as long as
/// the loader, through all passes. The loader keeps num_workers * prefetch_factor batches at most,
/// in addition to the batches of the caller.
///
/// A single thread calls the members. Errors of the workers are kept and thrown by the next call
/// for a batch; see DataLoader::next().
class LoaderBase {
 public:
  LoaderBase(const LoaderBase&) = delete;
  LoaderBase& operator=(const LoaderBase&) = delete;
  LoaderBase(LoaderBase&&) = delete;
  LoaderBase& operator=(LoaderBase&&) = delete;

  /// Begins a pass over the samples `indices`, in batches of the option `batch_size`, and drops the
  /// rest of the last pass. `from` is a value that state() of an equal pass has returned: batches
  /// taken before that state are not loaded again.
  ///
  /// Throws Error(kInvalidArgument) for an index outside the data set, and for a state of a pass
  /// with other batches.
  void start(std::vector<std::int64_t> indices, const std::optional<LoaderState>& from = {});

  /// Begins a pass over ready batches. Throws Error(kInvalidArgument) for an empty batch, and
  /// unless the option batch_size is 1 and drop_last is false; otherwise like start() above.
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

  /// Returns the number of batches in the pass, including the batches before the state `from`.
  [[nodiscard]] std::int64_t n_batches() const;

  /// Returns the position in the pass. Batches that are loaded ahead do not count.
  ///
  /// Throws Error(kInvalidArgument) before the first start().
  [[nodiscard]] LoaderState state() const;

 protected:
  /// Workers call `make` until the destructor returns, so `make` must own, or share, all that it
  /// uses.
  ///
  /// Throws Error(kInvalidArgument) for invalid options, Error(kSystem) if a thread cannot be
  /// started.
  LoaderBase(std::int64_t dataset_size, data::MakeBatch make, const DataLoaderOptions& options);

  /// Stops the workers, also in the middle of a pass. Waits only for the samples that are being
  /// loaded.
  ~LoaderBase();

  /// Returns the next batch of the pass, or null after the last batch. Throws the errors of
  /// DataLoader::next().
  [[nodiscard]] std::shared_ptr<void> take();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Loads batches of a data set, ahead of time if there are workers.
///
///     DataLoader loader(dataset, {.batch_size = 64, .num_workers = 2});
///     loader.start(sampler);
///     while (std::optional<data::Batch> batch = loader.next()) { ... }
///
/// LoaderBase defines a pass, the threads and the errors. CollatingLoader is for samples of
/// different shapes.
class DataLoader : public LoaderBase {
 public:
  /// The caller, this loader and its workers share `dataset`.
  ///
  /// Throws Error(kInvalidArgument) for invalid options, Error(kSystem) if a thread cannot be
  /// started.
  explicit DataLoader(const std::shared_ptr<const data::Dataset>& dataset,
                      const DataLoaderOptions& options = {});

  /// Returns the next batch of the pass, or std::nullopt after the last batch. Blocks until the
  /// batch is loaded.
  ///
  /// Throws Error: kInvalidArgument before the first start(); kTimeout if the workers take longer
  /// than the option `timeout`. If a sample cannot be loaded, throws Error with the index of the
  /// sample and the code of the data set's Error, kCorruptData for other exceptions. The pass has
  /// then ended, and every next() throws the same error until start(). An exception of
  /// worker_init_fn is reported in the same way, also after later calls of start().
  [[nodiscard]] std::optional<data::Batch> next();
};

/// A source of samples of any type and shape, which several threads may fetch by index at the same
/// time.
template <class T>
concept SampleSource = requires(const T& source, std::int64_t index) {
  { source.size() } -> std::convertible_to<std::int64_t>;
  source.sample(index);
};

/// The type of a sample of the source.
template <SampleSource T>
using SampleOf = std::remove_cvref_t<decltype(std::declval<const T&>().sample(std::int64_t{}))>;

/// Loads batches of a type of the caller, made of samples of any shape, such as padded texts.
///
///     CollatingLoader loader(reviews, datasets::PadToLongest(), {.batch_size = 32});
///     loader.start(sampler);
///     while (std::optional<datasets::PaddedBatch> batch = loader.next()) { ... }
///
/// LoaderBase defines a pass, the threads and the errors.
template <class Collated>
class CollatingLoader : public LoaderBase {
 public:
  /// The caller, this loader and its workers share `source`. `collate` makes a batch from the
  /// samples, in the order of the batch; several workers may call it at the same time.
  ///
  /// Throws Error(kInvalidArgument) for invalid options, Error(kSystem) if a thread cannot be
  /// started.
  template <SampleSource Source, std::invocable<std::vector<SampleOf<Source>>> Collate>
  CollatingLoader(const std::shared_ptr<Source>& source,
                  Collate collate,
                  const DataLoaderOptions& options = {})
      : LoaderBase(checked(source).size(), batch_maker(source, std::move(collate)), options) {}

  /// Returns the next batch of the pass, or std::nullopt after the last batch.
  ///
  /// Throws the errors of DataLoader::next(). An exception of `collate` is reported with the number
  /// of the batch.
  [[nodiscard]] std::optional<Collated> next() {
    const std::shared_ptr<void> batch = take();
    if (batch == nullptr) {
      return std::nullopt;
    }
    return std::move(*std::static_pointer_cast<Collated>(batch));
  }

 private:
  template <class Source>
  static const Source& checked(const std::shared_ptr<Source>& source) {
    if (source == nullptr) {
      throw Error(ErrorCode::kInvalidArgument, "DataLoader: the data set is null");
    }
    return *source;
  }

  template <class Source, class Collate>
  static data::MakeBatch batch_maker(const std::shared_ptr<Source>& source, Collate collate) {
    return [source, collate](data::BatchInHand& hand) -> std::shared_ptr<void> {
      std::vector<SampleOf<Source>> samples;
      samples.reserve(hand.size());
      for (std::size_t place = 0; place < hand.size(); ++place) {
        const std::optional<std::int64_t> index = hand.begin_sample(place);
        if (!index) {
          return nullptr;
        }
        samples.push_back(std::as_const(*source).sample(*index));
      }
      hand.end_samples();
      return std::make_shared<Collated>(collate(std::move(samples)));
    };
  }
};

template <class Source, class Collate>
CollatingLoader(const std::shared_ptr<Source>&, Collate)
    -> CollatingLoader<std::invoke_result_t<Collate, std::vector<SampleOf<Source>>>>;
template <class Source, class Collate>
CollatingLoader(const std::shared_ptr<Source>&, Collate, const DataLoaderOptions&)
    -> CollatingLoader<std::invoke_result_t<Collate, std::vector<SampleOf<Source>>>>;

/// Settings of time_loaders(). `batch_size` and `prefetch_factor` are those of DataLoaderOptions.
struct LoaderTimingOptions {
  std::int64_t batch_size = 64;
  int prefetch_factor = 2;
  /// Numbers of workers from 0 to this number are tried.
  int max_workers = 1;
  /// Time for each number of workers; a small data set is read several times.
  std::chrono::nanoseconds duration = std::chrono::seconds(1);
};

/// Speed of a loader.
struct LoaderTiming {
  int num_workers = 0;
  double samples_per_second = 0;
};

/// Measures the speed of a DataLoader for each number of workers: samples in shuffled order, and a
/// consumer that does no other work.
///
/// Throws Error(kInvalidArgument) for an empty data set and for invalid options, and the errors of
/// the data set.
[[nodiscard]] std::vector<LoaderTiming> time_loaders(
    const std::shared_ptr<const data::Dataset>& dataset, const LoaderTimingOptions& options = {});

/// Returns the smallest number of workers with a speed within 5% of the fastest. More workers take
/// cores from the training without a gain. `timings` must not be empty.
[[nodiscard]] LoaderTiming best_timing(std::span<const LoaderTiming> timings);

}  // namespace unisono
