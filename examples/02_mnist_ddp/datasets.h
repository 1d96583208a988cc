#pragma once

#include <memory>

#include "unisono/data/image_dataset.h"

#include "options.h"

namespace mnist {

struct Datasets {
  std::shared_ptr<const unisono::ImageDataset> train;
  std::shared_ptr<const unisono::ImageDataset> test;
};

/// Reads the images that the options name. Throws unisono::Error.
Datasets load_datasets(const Options& options);

}  // namespace mnist
