#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include <unisono/datasets.h>

#include "options.h"

namespace imdb {

/// Reviews as token numbers, with labels 0 (negative) and 1 (positive).
struct Reviews {
  std::shared_ptr<const unisono::datasets::TextDataset> train;
  std::shared_ptr<const unisono::datasets::TextDataset> test;
  std::int64_t ntokens;  ///< Tokens of the training reviews: the rows of the embedding.
};

/// Reads or generates reviews, the same on all ranks. Throws unisono::Error.
Reviews load_reviews(const Options& options);

/// Loads batches of reviews, padded to the longest review of the batch.
using Loader = unisono::CollatingLoader<unisono::datasets::PaddedBatch>;

/// Prints the size of the training. `ranks` describes the ranks, such as "2 ranks".
void print_start(const Options& options, const Reviews& reviews, const std::string& ranks);

/// The result of an epoch.
struct Epoch {
  int number;  // from 0
  double loss;
  double accuracy;  // from 0 to 1
};

/// Prints the result, and the seconds since `start`, the start of the training.
void print_epoch(const Options& options,
                 const Epoch& epoch,
                 std::chrono::steady_clock::time_point start);

}  // namespace imdb
