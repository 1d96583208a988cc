#include "datasets.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/data/image_dataset.h"
#include "unisono/data/readers/mnist.h"
#include "unisono/data/transforms/normalize.h"

#include "options.h"

namespace mnist {
namespace {

constexpr std::int64_t kSide = 28;

std::shared_ptr<const unisono::ImageDataset> load(const Options& options, unisono::Split split) {
  unisono::LabeledImages images = unisono::load_mnist(options.data, split);
  if (images.height != kSide || images.width != kSide) {
    throw unisono::Error(unisono::ErrorCode::kInvalidArgument,
                         options.data + ": the net takes images of 28 x 28, these are " +
                             std::to_string(images.height) + " x " + std::to_string(images.width));
  }
  if (options.limit > 0 && options.limit < images.size()) {
    images.pixels.resize(static_cast<std::size_t>(options.limit * kSide * kSide));
    images.labels.resize(static_cast<std::size_t>(options.limit));
  }
  return std::make_shared<unisono::ImageDataset>(std::move(images), unisono::mnist_normalize());
}

}  // namespace

Datasets load_datasets(const Options& options) {
  return {.train = load(options, unisono::Split::kTrain),
          .test = load(options, unisono::Split::kTest)};
}

}  // namespace mnist
