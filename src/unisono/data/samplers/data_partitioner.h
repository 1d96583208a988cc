#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unisono/base/log.h"

namespace unisono {

struct DataPartitionerOptions {
  /// Equal on all ranks, or their parts overlap.
  std::int64_t seed = 1234;
  /// true: samples that rounding leaves over go to the first parts, one each; false: no part has
  /// them, which is warned about.
  bool spread_rest = false;
};

/// Parts a shuffled data set by fractions: a part for each rank, or for training and tests.
///
/// Same parts as the DataPartitioner of PyTorch's tutorial "Writing Distributed Applications": the
/// order is that of Python's random.Random(seed).shuffle(), and a part has int(fraction * size)
/// samples, so that 7 parts of a seventh of 60000 leave 3 over. Parts are disjoint.
class DataPartitioner {
 public:
  /// `logger` gets the warning about samples that no part has; without one it goes to stderr.
  ///
  /// Throws Error(kInvalidArgument) for a fraction that is not within 0 and 1, for fractions that
  /// are more than 1 together, and for a data set of less than 0 or more than 2^48 samples. Takes 8
  /// bytes per sample of the whole data set.
  explicit DataPartitioner(std::int64_t dataset_size,
                           const std::vector<double>& fractions = {0.7, 0.2, 0.1},
                           const DataPartitionerOptions& options = {});
  DataPartitioner(std::int64_t dataset_size,
                  const std::vector<double>& fractions,
                  const DataPartitionerOptions& options,
                  const Logger& logger);

  /// Number of parts.
  [[nodiscard]] int size() const { return static_cast<int>(ends_.size()); }

  /// The indices of one part, which live as long as this does.
  ///
  /// Throws Error(kInvalidArgument) unless 0 <= part < size().
  [[nodiscard]] std::span<const std::int64_t> use(int part) const;

  /// Samples that no part has because parts were rounded down.
  [[nodiscard]] std::int64_t n_left_over() const { return n_left_over_; }

 private:
  std::vector<std::int64_t> order_;
  std::vector<std::size_t> ends_;  // of each part, in order_
  std::int64_t n_left_over_ = 0;
};

}  // namespace unisono
