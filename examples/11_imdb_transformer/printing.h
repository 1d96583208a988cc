#pragma once

#include <chrono>
#include <string>

#include "options.h"
#include "reviews.h"

namespace imdb {

/// What is trained on: reviews, tokens, and `how`, as "2 ranks".
void print_start(const Options& options, const Reviews& reviews, const std::string& how);

struct Epoch {
  int number;  // from 0
  double loss;
  double accuracy;
};

/// The epoch's results, and the seconds since `start`, which was before the first one.
void print_epoch(const Options& options,
                 const Epoch& epoch,
                 std::chrono::steady_clock::time_point start);

}  // namespace imdb
