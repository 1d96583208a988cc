#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unisono/base/log.h"

namespace unisono {

/// Options of DataPartitioner.
struct DataPartitionerOptions {
  /// Must be equal on all ranks; otherwise the parts overlap.
  std::int64_t seed = 1234;
  /// true: samples that rounding leaves over go to the first parts, one sample each. false: no part
  /// has these samples, and a warning reports them.
  bool spread_rest = false;
};

/// Divides a shuffled data set by fractions: a part for each rank, or for training and tests.
///
/// The parts are equal to those of DataPartitioner in PyTorch's tutorial "Writing Distributed
/// Applications": the order is that of Python's random.Random(seed).shuffle(), and a part has
/// int(fraction * size) samples, so that 7 parts of a seventh of 60000 leave 3 samples over. Parts
/// are disjoint. The object does not change after construction, so all members are thread-safe.
class DataPartitioner {
 public:
  /// `logger` receives the warning about samples that no part has; the default logger writes to
  /// stderr.
  ///
  /// Throws Error(kInvalidArgument) for a fraction outside 0 to 1, for fractions with a sum above
  /// 1, and for a data set of less than 0 or more than 2^48 samples. Takes 8 bytes per sample of
  /// the whole data set.
  explicit DataPartitioner(std::int64_t dataset_size,
                           const std::vector<double>& fractions = {0.7, 0.2, 0.1},
                           const DataPartitionerOptions& options = {});
  DataPartitioner(std::int64_t dataset_size,
                  const std::vector<double>& fractions,
                  const DataPartitionerOptions& options,
                  const base::Logger& logger);

  /// Returns the number of parts.
  [[nodiscard]] int size() const { return static_cast<int>(ends_.size()); }

  /// Returns the indices of a part, which live as long as the object.
  ///
  /// Throws Error(kInvalidArgument) unless 0 <= part < size().
  [[nodiscard]] std::span<const std::int64_t> use(int part) const;

  /// Returns the number of samples that no part has because the sizes are rounded down.
  [[nodiscard]] std::int64_t n_left_over() const { return n_left_over_; }

 private:
  std::vector<std::int64_t> order_;
  std::vector<std::size_t> ends_;  // end of each part in order_
  std::int64_t n_left_over_ = 0;
};

}  // namespace unisono
