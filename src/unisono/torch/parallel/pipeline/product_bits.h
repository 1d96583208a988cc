#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>

#include <ATen/core/Tensor.h>

namespace unisono::parallel {

/// Whether a product of matrices has the same bits where it adds to a matrix as where a pass of
/// its own adds it.
///
/// Math libraries sum a few hundred rows up in registers before they add them to what is there,
/// which is one addition either way; longer sums are added in parts, and the product of one row may
/// be fused with the addition. Where the limits are depends on library, processor and shape, so
/// each shape is tried once.
class ProductBits {
 public:
  /// Of left.t() with right, of `n_rows` each. Of a shape that was not tried yet it is not known:
  /// false.
  [[nodiscard]] bool are_alike(at::ScalarType type,
                               std::int64_t n_rows,
                               std::int64_t left_width,
                               std::int64_t right_width);

  /// Tries the shapes that were asked for in vain, which takes the time of some products.
  void try_new_shapes();

 private:
  // Type, rows, widths and number of threads.
  using Shape = std::tuple<at::ScalarType, std::int64_t, std::int64_t, std::int64_t, int>;

  std::map<Shape, std::optional<bool>> are_alike_;  // Nothing: not tried yet.
};

}  // namespace unisono::parallel
