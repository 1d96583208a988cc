#include "unisono/data/data_loader.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <exception>
#include <string>
#include <system_error>
#include <thread>
#include <variant>

#include "unisono/base/buffer.h"
#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/gpus.h"
#include "unisono/base/log.h"
#include "unisono/data/prefetch_queue.h"
#include "unisono/data/samplers/distributed_sampler.h"

namespace unisono {
namespace {

constexpr int kMaxWorkers = 1024;
constexpr int kMaxPrefetchFactor = 1024;

[[noreturn]] void throw_bad_loader(const std::string& problem) {
  throw Error(ErrorCode::kInvalidArgument, "DataLoader: " + problem);
}

DataLoaderOptions checked(const DataLoaderOptions& options) {
  if (options.batch_size < 1) {
    throw_bad_loader(fmt::format("batch_size is {}; it must be at least 1", options.batch_size));
  }
  if (options.num_workers < 0 || options.num_workers > kMaxWorkers) {
    throw_bad_loader(
        fmt::format("num_workers is {}; 0 to {} are possible", options.num_workers, kMaxWorkers));
  }
  if (options.prefetch_factor < 1 || options.prefetch_factor > kMaxPrefetchFactor) {
    throw_bad_loader(fmt::format("prefetch_factor is {}; 1 to {} are possible",
                                 options.prefetch_factor,
                                 kMaxPrefetchFactor));
  }
  if (options.timeout <= std::chrono::nanoseconds::zero()) {
    throw_bad_loader("timeout must be above zero");
  }
  return options;
}

// Reports once per process, because training and test data have a loader each.
void report_pinning() {
  static std::atomic<bool> is_reported{false};
  if (is_reported.exchange(true, std::memory_order_relaxed)) {
    return;
  }
  const Gpus gpus = find_gpus(process_environment());
  if (gpus.visible.empty()) {
    base::Logger("data").info(fmt::format(
        "DataLoader: pin_memory has no effect: there is no accelerator ({})", gpus.explanation));
  }
}

// Converts the exception that is being handled into a value.
data::LoadFailure current_failure(const std::string& where) {
  try {
    throw;
  } catch (const Error& error) {
    return {.code = error.code(), .message = fmt::format("{}: {}", where, error.what())};
  } catch (const std::exception& error) {
    return {.code = ErrorCode::kCorruptData, .message = fmt::format("{}: {}", where, error.what())};
  } catch (...) {
    return {.code = ErrorCode::kCorruptData,
            .message = fmt::format("{}: an exception of unknown type", where)};
  }
}

}  // namespace

std::optional<std::int64_t> data::BatchInHand::begin_sample(std::size_t place) {
  if (is_dropped_->load(std::memory_order_relaxed)) {
    return std::nullopt;
  }
  current_ = indices_[place];
  return current_;
}

class LoaderBase::Impl {
 public:
  Impl(std::int64_t dataset_size, data::MakeBatch make, const DataLoaderOptions& options)
      : dataset_size_(dataset_size),
        make_(std::move(make)),
        options_(checked(options)),
        queue_(std::max(1, options.num_workers * options.prefetch_factor)) {
    if (options.pin_memory) {
      report_pinning();
    }
    workers_.reserve(static_cast<std::size_t>(options_.num_workers));
    try {
      for (int worker = 0; worker < options_.num_workers; ++worker) {
        workers_.emplace_back([this, worker] { run_worker(worker); });
      }
    } catch (const std::system_error& error) {
      const std::size_t n_started = workers_.size();
      stop();
      throw system_error(fmt::format("DataLoader: can't start worker thread {} of {}",
                                     n_started + 1,
                                     options_.num_workers),
                         error.code().value());
    }
  }

  ~Impl() { stop(); }

  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  Impl(Impl&&) = delete;
  Impl& operator=(Impl&&) = delete;

  [[nodiscard]] const DataLoaderOptions& options() const { return options_; }

  void start(data::BatchPlan plan, const std::optional<LoaderState>& from) {
    for (const std::int64_t index : plan.indices) {
      if (index < 0 || index >= dataset_size_) {
        throw_bad_loader(
            fmt::format("index {} is outside a data set of {} samples", index, dataset_size_));
      }
    }
    const LoaderState start = from.value_or(LoaderState{.n_taken = 0, .order = hash_of(plan)});
    check_fits(start, plan);
    state_ = start;
    pass_ = std::make_shared<data::Pass>(std::move(plan), start.n_taken);
    failure_.reset();
    queue_.start(pass_);
  }

  [[nodiscard]] std::int64_t n_batches() const {
    return pass_ == nullptr ? 0 : pass_->plan.n_batches();
  }

  [[nodiscard]] LoaderState state() const {
    if (pass_ == nullptr) {
      throw_bad_loader("state() was called before start(indices)");
    }
    return state_;
  }

  std::shared_ptr<void> take() {
    if (pass_ == nullptr) {
      throw_bad_loader("next() was called before start(indices)");
    }
    if (failure_) {
      throw Error(failure_->code, failure_->message);
    }
    if (state_.n_taken == pass_->plan.n_batches()) {
      return nullptr;
    }
    data::LoadResult result =
        workers_.empty() ? load({.pass = pass_, .batch = state_.n_taken}) : wait_for_worker();
    if (auto* failure = std::get_if<data::LoadFailure>(&result)) {
      pass_->abandoned.store(true, std::memory_order_relaxed);
      failure_ = std::move(*failure);
      throw Error(failure_->code, failure_->message);
    }
    ++state_.n_taken;
    return std::get<std::shared_ptr<void>>(std::move(result));
  }

 private:
  static void check_fits(const LoaderState& start, const data::BatchPlan& plan) {
    if (start.order != hash_of(plan) || start.n_taken < 0 || start.n_taken > plan.n_batches()) {
      throw_bad_loader(fmt::format(
          "the state, {} batches into a pass, does not belong to the {} batches of this pass; go "
          "on with the same data set, sampler, seed, epoch, batch size and "
          "number of ranks",
          start.n_taken,
          plan.n_batches()));
    }
  }

  void run_worker(int worker) {
    ::pthread_setname_np(::pthread_self(), fmt::format("uni-load-{}", worker).c_str());
    try {
      if (options_.worker_init_fn) {
        options_.worker_init_fn(worker);
      }
    } catch (...) {
      queue_.fail(current_failure(fmt::format("DataLoader: worker_init_fn of worker {}", worker)));
      return;
    }
    while (const std::optional<data::LoadJob> job = queue_.take_job()) {
      queue_.deliver(*job, load(*job));
    }
  }

  // Never throws, because workers have no caller that could handle an exception.
  data::LoadResult load(const data::LoadJob& job) {
    data::BatchInHand hand(job.pass->plan.batch(job.batch), job.pass->abandoned);
    try {
      std::shared_ptr<void> batch = make_(hand);
      if (batch == nullptr) {
        return data::LoadFailure{.code = ErrorCode::kClosed, .message = "the pass was dropped"};
      }
      return batch;
    } catch (...) {
      return current_failure(
          hand.current()
              ? fmt::format("DataLoader: sample {} (batch {})", *hand.current(), job.batch)
              : fmt::format("DataLoader: batch {}", job.batch));
    }
  }

  data::LoadResult wait_for_worker() {
    std::optional<data::LoadResult> result = queue_.take_result(Deadline::after(options_.timeout));
    if (!result) {
      return data::LoadFailure{
          .code = ErrorCode::kTimeout,
          .message = fmt::format("DataLoader: batch {} of {} was not loaded within {} s; its first "
                                 "sample is {}",
                                 state_.n_taken,
                                 pass_->plan.n_batches(),
                                 std::chrono::duration<double>(options_.timeout).count(),
                                 pass_->plan.batch(state_.n_taken).front())};
    }
    return std::move(*result);
  }

  void stop() {
    queue_.close();
    workers_.clear();
  }

  const std::int64_t dataset_size_;
  const data::MakeBatch make_;
  const DataLoaderOptions options_;
  data::PrefetchQueue queue_;
  std::shared_ptr<data::Pass> pass_;
  LoaderState state_;
  std::optional<data::LoadFailure> failure_;
  std::vector<std::jthread> workers_;
};

LoaderBase::LoaderBase(std::int64_t dataset_size,
                       data::MakeBatch make,
                       const DataLoaderOptions& options)
    : impl_(std::make_unique<Impl>(dataset_size, std::move(make), options)) {}

LoaderBase::~LoaderBase() = default;

void LoaderBase::start(std::vector<std::int64_t> indices, const std::optional<LoaderState>& from) {
  const DataLoaderOptions& options = impl_->options();
  impl_->start(data::plan_batches(std::move(indices), options.batch_size, options.drop_last), from);
}

void LoaderBase::start_batches(const std::vector<std::vector<std::int64_t>>& batches,
                               const std::optional<LoaderState>& from) {
  const DataLoaderOptions& options = impl_->options();
  if (options.batch_size != 1 || options.drop_last) {
    throw_bad_loader(
        fmt::format("batch_size {} and drop_last {} were asked for, but the batches are made "
                    "already; leave both options out",
                    options.batch_size,
                    options.drop_last));
  }
  if (std::ranges::any_of(batches, &std::vector<std::int64_t>::empty)) {
    throw_bad_loader("a batch has no samples");
  }
  impl_->start(data::plan_batches(batches), from);
}

std::int64_t LoaderBase::n_batches() const {
  return impl_->n_batches();
}

LoaderState LoaderBase::state() const {
  return impl_->state();
}

std::shared_ptr<void> LoaderBase::take() {
  return impl_->take();
}

namespace {

data::SampleFormat format_of(const data::Dataset& dataset, bool pin_memory) {
  data::SampleFormat format{.dtype = dataset.dtype(),
                            .shape = dataset.sample_shape(),
                            .n_bytes = 0,
                            .pin_memory = pin_memory};
  std::size_t n_bytes = size_of(format.dtype);
  for (const std::int64_t dim : format.shape) {
    if (dim < 0 || __builtin_mul_overflow(n_bytes, static_cast<std::size_t>(dim), &n_bytes)) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("DataLoader: the data set's samples have a dimension of {}", dim));
    }
  }
  format.n_bytes = n_bytes;
  return format;
}

const data::Dataset& checked(const std::shared_ptr<const data::Dataset>& dataset) {
  if (dataset == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "DataLoader: the data set is null");
  }
  return *dataset;
}

data::MakeBatch batch_maker(const std::shared_ptr<const data::Dataset>& dataset,
                            const DataLoaderOptions& options) {
  // Batches ahead of the consumer, and the batch that the consumer holds.
  const int n_kept = std::max(1, options.num_workers * options.prefetch_factor) + 1;
  auto pool = std::make_shared<data::BatchPool>(format_of(checked(dataset), options.pin_memory),
                                                static_cast<std::size_t>(std::max(1, n_kept)));
  return [dataset, pool = std::move(pool)](data::BatchInHand& hand) -> std::shared_ptr<void> {
    auto batch = std::make_shared<data::Batch>(pool, hand.size());
    for (std::size_t place = 0; place < hand.size(); ++place) {
      const std::optional<std::int64_t> index = hand.begin_sample(place);
      if (!index) {
        return nullptr;
      }
      batch->labels()[place] = dataset->load(*index, batch->sample_bytes(place));
    }
    return batch;
  };
}

}  // namespace

DataLoader::DataLoader(const std::shared_ptr<const data::Dataset>& dataset,
                       const DataLoaderOptions& options)
    : LoaderBase(checked(dataset).size(), batch_maker(dataset, options), options) {}

std::optional<data::Batch> DataLoader::next() {
  const std::shared_ptr<void> batch = take();
  if (batch == nullptr) {
    return std::nullopt;
  }
  return std::move(*std::static_pointer_cast<data::Batch>(batch));
}

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kNearlyAsFast = 0.95;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

LoaderTiming time_loader(const std::shared_ptr<const data::Dataset>& dataset,
                         int num_workers,
                         const LoaderTimingOptions& options) {
  DataLoader loader(dataset,
                    {.batch_size = options.batch_size,
                     .num_workers = num_workers,
                     .prefetch_factor = options.prefetch_factor});
  DistributedSampler sampler(dataset->size(), 1, 0);
  const Clock::time_point start = Clock::now();
  std::int64_t n_samples = 0;
  for (std::int64_t epoch = 0; n_samples == 0 || Clock::now() - start < options.duration; ++epoch) {
    sampler.set_epoch(epoch);
    loader.start(sampler);
    // The loop may stop within a pass, because a pass over a large data set may take hours.
    do {
      const std::optional<data::Batch> batch = loader.next();
      if (!batch) {
        break;
      }
      n_samples += batch->size();
    } while (Clock::now() - start < options.duration);
  }
  return {.num_workers = num_workers,
          .samples_per_second = static_cast<double>(n_samples) / seconds_since(start)};
}

}  // namespace

std::vector<LoaderTiming> time_loaders(const std::shared_ptr<const data::Dataset>& dataset,
                                       const LoaderTimingOptions& options) {
  if (dataset == nullptr || dataset->size() < 1 || options.max_workers < 0) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("time_loaders: {} samples, up to {} workers; there must be a sample, and "
                    "no negative number of workers",
                    dataset == nullptr ? 0 : dataset->size(),
                    options.max_workers));
  }
  std::vector<LoaderTiming> timings;
  for (int num_workers = 0; num_workers <= options.max_workers; ++num_workers) {
    timings.push_back(time_loader(dataset, num_workers, options));
  }
  return timings;
}

LoaderTiming best_timing(std::span<const LoaderTiming> timings) {
  const LoaderTiming fastest = std::ranges::max(timings, {}, &LoaderTiming::samples_per_second);
  LoaderTiming best = fastest;
  for (const LoaderTiming& timing : timings) {
    if (timing.num_workers < best.num_workers &&
        timing.samples_per_second >= kNearlyAsFast * fastest.samples_per_second) {
      best = timing;
    }
  }
  return best;
}

}  // namespace unisono
