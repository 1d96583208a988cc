#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/data/loader_base.h"

namespace unisono {

/// Samples of any type and shape that can be fetched by index, by several threads at once.
template <class T>
concept SampleSource = requires(const T& source, std::int64_t index) {
  { source.size() } -> std::convertible_to<std::int64_t>;
  source.sample(index);
};

template <SampleSource T>
using SampleOf = std::remove_cvref_t<decltype(std::declval<const T&>().sample(std::int64_t{}))>;

/// Loads batches of a type of the caller's own, made of samples of any shape: padded texts, say.
///
///     CollatingLoader loader(reviews, PadToLongest(), {.batch_size = 32, .num_workers = 2});
///     loader.start(sampler);
///     while (std::optional<PaddedBatch> batch = loader.next()) { ... }
///
/// LoaderBase says what a pass is.
template <class Collated>
class CollatingLoader : public LoaderBase {
 public:
  /// `source` is shared by the caller, this loader and its workers. `collate` makes a batch of the
  /// samples, in the order of the batch; workers call it, several at once.
  ///
  /// Throws Error: kInvalidArgument for options that make no sense, kSystem when a thread can't be
  /// started.
  template <SampleSource Source, std::invocable<std::vector<SampleOf<Source>>> Collate>
  CollatingLoader(const std::shared_ptr<Source>& source,
                  Collate collate,
                  const DataLoaderOptions& options = {})
      : LoaderBase(checked(source).size(), batch_maker(source, std::move(collate)), options) {}

  /// The next batch of the pass, or nothing when it has ended.
  ///
  /// Throws as DataLoader::next(); what `collate` throws comes with the batch's number.
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

}  // namespace unisono
