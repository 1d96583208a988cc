#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unisono/base/dtype.h"

namespace unisono {

/// Samples of one shape and element type that can be fetched by index, each with a label.
///
/// All members are called by several threads at once.
class Dataset {
 public:
  Dataset() = default;
  Dataset(const Dataset&) = default;
  Dataset& operator=(const Dataset&) = default;
  Dataset(Dataset&&) = default;
  Dataset& operator=(Dataset&&) = default;
  virtual ~Dataset() = default;

  /// Number of samples.
  [[nodiscard]] virtual std::int64_t size() const = 0;

  /// Element type of a sample.
  [[nodiscard]] virtual DType dtype() const = 0;

  /// Shape of a sample, e.g. {1, 28, 28}; the same for all.
  [[nodiscard]] virtual std::vector<std::int64_t> sample_shape() const = 0;

  /// Writes sample `index`, 0 <= index < size(), into all of `into` and returns its label.
  ///
  /// `into` has the bytes that dtype() and sample_shape() make, aligned for the element type. What
  /// this throws reaches the one who asked for the batch.
  [[nodiscard]] virtual std::int64_t load(std::int64_t index, std::span<std::byte> into) const = 0;
};

}  // namespace unisono
