#include "unisono/data/data_loader.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/data/batch.h"
#include "unisono/data/dataset.h"
#include "unisono/data/prefetch_queue.h"

namespace unisono {
namespace {

constexpr int kMaxWorkers = 1024;
constexpr int kMaxPrefetchFactor = 1024;

[[noreturn]] void throw_bad(const std::string& problem) {
  throw Error(ErrorCode::kInvalidArgument, "DataLoader: " + problem);
}

void check_options(const DataLoaderOptions& options) {
  if (options.batch_size < 1) {
    throw_bad(fmt::format("batch_size is {}; it must be at least 1", options.batch_size));
  }
  if (options.num_workers < 0 || options.num_workers > kMaxWorkers) {
    throw_bad(
        fmt::format("num_workers is {}; 0 to {} are possible", options.num_workers, kMaxWorkers));
  }
  if (options.prefetch_factor < 1 || options.prefetch_factor > kMaxPrefetchFactor) {
    throw_bad(fmt::format("prefetch_factor is {}; 1 to {} are possible",
                          options.prefetch_factor,
                          kMaxPrefetchFactor));
  }
  if (options.timeout <= std::chrono::nanoseconds::zero()) {
    throw_bad("timeout must be above zero");
  }
}

data::SampleFormat format_of(const Dataset& dataset) {
  data::SampleFormat format{
      .dtype = dataset.dtype(), .shape = dataset.sample_shape(), .n_bytes = 0};
  std::size_t n_bytes = size_of(format.dtype);
  for (const std::int64_t dim : format.shape) {
    if (dim < 0 || __builtin_mul_overflow(n_bytes, static_cast<std::size_t>(dim), &n_bytes)) {
      throw_bad(fmt::format("the data set's samples have a dimension of {}", dim));
    }
  }
  format.n_bytes = n_bytes;
  return format;
}

std::int64_t count_batches(std::int64_t n_samples, const DataLoaderOptions& options) {
  const bool has_small_batch = n_samples % options.batch_size != 0 && !options.drop_last;
  return n_samples / options.batch_size + (has_small_batch ? 1 : 0);
}

// The exception that is being handled, as a value.
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

class DataLoader::Impl {
 public:
  Impl(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options)
      : dataset_(std::move(dataset)),
        options_(options),
        window_(std::max(1, options.num_workers * options.prefetch_factor)),
        pool_(std::make_shared<data::BatchPool>(format_of(*dataset_),
                                                static_cast<std::size_t>(window_) + 1)),
        queue_(window_) {
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

  void start(std::vector<std::int64_t> indices) {
    const std::int64_t size = dataset_->size();
    for (const std::int64_t index : indices) {
      if (index < 0 || index >= size) {
        throw_bad(fmt::format("index {} is outside a data set of {} samples", index, size));
      }
    }
    auto pass = std::make_shared<data::Pass>();
    pass->n_batches = count_batches(static_cast<std::int64_t>(indices.size()), options_);
    pass->batch_size = options_.batch_size;
    pass->indices = std::move(indices);
    pass_ = pass;
    n_taken_ = 0;
    failure_.reset();
    queue_.start(std::move(pass));
  }

  [[nodiscard]] std::int64_t n_batches() const { return pass_ == nullptr ? 0 : pass_->n_batches; }

  std::optional<Batch> next() {
    if (pass_ == nullptr) {
      throw_bad("next() was called before start(indices)");
    }
    if (failure_) {
      throw Error(failure_->code, failure_->message);
    }
    if (n_taken_ == pass_->n_batches) {
      return std::nullopt;
    }
    data::LoadResult result =
        workers_.empty() ? load({.pass = pass_, .batch = n_taken_}) : wait_for_worker();
    if (auto* failure = std::get_if<data::LoadFailure>(&result)) {
      pass_->abandoned.store(true, std::memory_order_relaxed);
      failure_ = std::move(*failure);
      throw Error(failure_->code, failure_->message);
    }
    ++n_taken_;
    return std::get<Batch>(std::move(result));
  }

 private:
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

  // Never throws: it also runs in workers, who have nobody to throw to.
  data::LoadResult load(const data::LoadJob& job) {
    const data::Pass& pass = *job.pass;
    const std::int64_t first = job.batch * pass.batch_size;
    const std::int64_t n_left = static_cast<std::int64_t>(pass.indices.size()) - first;
    const auto n_samples = static_cast<std::size_t>(std::min(pass.batch_size, n_left));
    std::int64_t index = pass.indices[static_cast<std::size_t>(first)];
    try {
      Batch batch(pool_, n_samples);
      for (std::size_t place = 0; place < n_samples; ++place) {
        if (pass.abandoned.load(std::memory_order_relaxed)) {
          return data::LoadFailure{.code = ErrorCode::kClosed, .message = "the pass was dropped"};
        }
        index = pass.indices[static_cast<std::size_t>(first) + place];
        batch.labels()[place] = dataset_->load(index, batch.sample_bytes(place));
      }
      return batch;
    } catch (...) {
      return current_failure(fmt::format("DataLoader: sample {} (batch {})", index, job.batch));
    }
  }

  data::LoadResult wait_for_worker() {
    std::optional<data::LoadResult> result = queue_.take_result(Deadline::after(options_.timeout));
    if (!result) {
      return data::LoadFailure{
          .code = ErrorCode::kTimeout,
          .message =
              fmt::format("DataLoader: batch {} of {} was not loaded within {} s; its first "
                          "sample is {}",
                          n_taken_,
                          pass_->n_batches,
                          std::chrono::duration<double>(options_.timeout).count(),
                          pass_->indices[static_cast<std::size_t>(n_taken_ * pass_->batch_size)])};
    }
    return std::move(*result);
  }

  void stop() {
    queue_.close();
    workers_.clear();
  }

  const std::shared_ptr<const Dataset> dataset_;
  const DataLoaderOptions options_;
  const std::int64_t window_;
  const std::shared_ptr<data::BatchPool> pool_;
  data::PrefetchQueue queue_;
  std::shared_ptr<data::Pass> pass_;
  std::int64_t n_taken_ = 0;
  std::optional<data::LoadFailure> failure_;
  std::vector<std::jthread> workers_;
};

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options) {
  check_options(options);
  if (dataset == nullptr) {
    throw_bad("the data set is null");
  }
  impl_ = std::make_unique<Impl>(std::move(dataset), options);
}

DataLoader::~DataLoader() = default;

void DataLoader::start(std::vector<std::int64_t> indices) {
  impl_->start(std::move(indices));
}

std::int64_t DataLoader::n_batches() const {
  return impl_->n_batches();
}

std::optional<Batch> DataLoader::next() {
  return impl_->next();
}

}  // namespace unisono
