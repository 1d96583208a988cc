#include "unisono/data/data_loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/data/batch.h"
#include "unisono/data/dataset.h"
#include "unisono/data/loader_base.h"

namespace unisono {
namespace {

data::SampleFormat format_of(const Dataset& dataset, bool pin_memory) {
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

const Dataset& checked(const std::shared_ptr<const Dataset>& dataset) {
  if (dataset == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "DataLoader: the data set is null");
  }
  return *dataset;
}

data::MakeBatch batch_maker(const std::shared_ptr<const Dataset>& dataset,
                            const DataLoaderOptions& options) {
  // Those ahead of the consumer, and the one in its hands.
  const int n_kept = std::max(1, options.num_workers * options.prefetch_factor) + 1;
  auto pool = std::make_shared<data::BatchPool>(format_of(checked(dataset), options.pin_memory),
                                                static_cast<std::size_t>(std::max(1, n_kept)));
  return [dataset, pool = std::move(pool)](data::BatchInHand& hand) -> std::shared_ptr<void> {
    auto batch = std::make_shared<Batch>(pool, hand.size());
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

DataLoader::DataLoader(const std::shared_ptr<const Dataset>& dataset,
                       const DataLoaderOptions& options)
    : LoaderBase(checked(dataset).size(), batch_maker(dataset, options), options) {}

std::optional<Batch> DataLoader::next() {
  const std::shared_ptr<void> batch = take();
  if (batch == nullptr) {
    return std::nullopt;
  }
  return std::move(*std::static_pointer_cast<Batch>(batch));
}

}  // namespace unisono
