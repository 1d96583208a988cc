#pragma once

#include <cstdint>
#include <memory>

#include "unisono/data/readers/text_dataset.h"

#include "options.h"

namespace imdb {

/// Reviews as the numbers of their tokens, labels 0 (negative) and 1 (positive).
struct Reviews {
  std::shared_ptr<const unisono::TextDataset> train;
  std::shared_ptr<const unisono::TextDataset> test;
  std::int64_t ntokens;  ///< Rows of the embedding. The tokens are those of the training reviews.
};

/// Reads the reviews that the options name, or makes some up. Equal on all ranks.
///
/// Throws unisono::Error.
Reviews load_reviews(const Options& options);

}  // namespace imdb
