#include "unisono/data/samplers/data_partitioner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "unisono/base/error.h"
#include "unisono/data/samplers/share.h"

namespace unisono {
namespace {

// Allows for rounding of fractions such as 1.0 / 3.
constexpr double kMostTogether = 1.0 + 1e-9;

[[noreturn]] void throw_bad_partition(const std::string& problem) {
  throw Error(ErrorCode::kInvalidArgument, "DataPartitioner: " + problem);
}

void check_fractions(const std::vector<double>& fractions) {
  for (std::size_t part = 0; part < fractions.size(); ++part) {
    if (!(fractions[part] >= 0 && fractions[part] <= 1)) {
      throw_bad_partition(
          fmt::format("fraction {} is {}; it must be within 0 and 1", part, fractions[part]));
    }
  }
  const double sum = std::accumulate(fractions.begin(), fractions.end(), 0.0);
  if (sum > kMostTogether) {
    throw_bad_partition(fmt::format(
        "the {} fractions are {} together, more than the whole data set", fractions.size(), sum));
  }
}

struct Parts {
  std::vector<std::int64_t> sizes;
  std::int64_t n_left_over = 0;
};

Parts round_down(std::int64_t dataset_size, const std::vector<double>& fractions) {
  const auto n_samples = static_cast<double>(dataset_size);
  Parts parts;
  double n_wanted = 0;
  std::int64_t n_unused = dataset_size;
  for (const double fraction : fractions) {
    n_wanted += fraction * n_samples;
    parts.sizes.push_back(std::min(static_cast<std::int64_t>(fraction * n_samples), n_unused));
    n_unused -= parts.sizes.back();
  }
  const std::int64_t n_used = dataset_size - n_unused;
  parts.n_left_over =
      std::clamp<std::int64_t>(std::llround(n_wanted) - n_used, std::int64_t{0}, n_unused);
  return parts;
}

void spread_rest(Parts& parts) {
  for (std::size_t part = 0; parts.n_left_over > 0; ++part) {
    ++parts.sizes[part % parts.sizes.size()];
    --parts.n_left_over;
  }
}

}  // namespace

DataPartitioner::DataPartitioner(std::int64_t dataset_size,
                                 const std::vector<double>& fractions,
                                 const DataPartitionerOptions& options)
    : DataPartitioner(dataset_size, fractions, options, base::Logger("data")) {}

DataPartitioner::DataPartitioner(std::int64_t dataset_size,
                                 const std::vector<double>& fractions,
                                 const DataPartitionerOptions& options,
                                 const base::Logger& logger) {
  data::check_dataset_size("DataPartitioner", dataset_size);
  check_fractions(fractions);
  Parts parts = round_down(dataset_size, fractions);
  if (options.spread_rest) {
    spread_rest(parts);
  }
  n_left_over_ = parts.n_left_over;
  if (n_left_over_ > 0) {
    logger.warning(
        fmt::format("DataPartitioner: {} of {} samples are in none of the {} parts, whose sizes "
                    "are rounded down; spread_rest gives them to the first parts",
                    n_left_over_,
                    dataset_size,
                    fractions.size()));
  }
  order_ = data::python_permutation(dataset_size, options.seed);
  std::size_t end = 0;
  for (const std::int64_t size : parts.sizes) {
    end += static_cast<std::size_t>(size);
    ends_.push_back(end);
  }
}

std::span<const std::int64_t> DataPartitioner::use(int part) const {
  if (part < 0 || part >= size()) {
    throw_bad_partition(
        fmt::format("part {} was requested, but there are {}, counted from 0", part, size()));
  }
  const auto at = static_cast<std::size_t>(part);
  const std::size_t start = at == 0 ? 0 : ends_[at - 1];
  return std::span(order_).subspan(start, ends_[at] - start);
}

}  // namespace unisono
