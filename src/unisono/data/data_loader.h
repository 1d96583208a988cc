#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "unisono/data/batch.h"
#include "unisono/data/dataset.h"
#include "unisono/data/loader_base.h"

namespace unisono {

/// Loads batches of a data set, ahead of time where it has workers.
///
///     DataLoader loader(dataset, {.batch_size = 64, .num_workers = 2});
///     loader.start(sampler);
///     while (std::optional<Batch> batch = loader.next()) { ... }
///
/// LoaderBase says what a pass is. For samples of different shapes there is CollatingLoader.
class DataLoader : public LoaderBase {
 public:
  /// `dataset` is shared by the caller, this loader and its workers.
  ///
  /// Throws Error: kInvalidArgument for options that make no sense, kSystem when a thread can't be
  /// started.
  explicit DataLoader(const std::shared_ptr<const Dataset>& dataset,
                      const DataLoaderOptions& options = {});

  /// The next batch of the pass, or nothing when it has ended.
  ///
  /// Throws Error: kInvalidArgument before the first start(); kTimeout; and what kept a sample of
  /// the batch from being loaded, with its index: the code is that of the Error that the data set
  /// threw, kCorruptData for other exceptions. The pass is over then and every next() throws the
  /// same, until start(). What worker_init_fn throws comes the same way, and for good.
  [[nodiscard]] std::optional<Batch> next();
};

}  // namespace unisono
