#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include "unisono/comm/process_group.h"

namespace unisono::ddp {

/// The order in which buckets hold the parameters' gradients: from the last to the first, until a
/// pass has shown in which order they come.
class GradientOrder {
 public:
  explicit GradientOrder(std::size_t n_parameters);

  [[nodiscard]] const std::vector<std::size_t>& present() const { return present_; }

  /// So many parameters follow, with the highest numbers. Their gradients are last in the order,
  /// until the next pass has shown where they come.
  void add(std::size_t n_parameters);

  /// A pass is over, in which gradients came in that order; all but the first since parameters were
  /// added are ignored.
  void observe(const std::vector<std::size_t>& seen);

  /// Before the next pass, on every rank: a collective operation if the last one was
  /// the first. Returns
  /// whether present() has changed, to what rank 0 saw.
  bool agree(ProcessGroup& group, std::optional<std::chrono::milliseconds> timeout);

 private:
  std::vector<std::size_t> present_;
  std::vector<std::size_t> seen_;  // of the first pass, until the ranks have agreed
  bool is_agreed_ = false;
};

}  // namespace unisono::ddp
