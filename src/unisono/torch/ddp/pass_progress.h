#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include "unisono/comm/process_group.h"

namespace unisono::ddp {

/// Tracks the gradients of one backward pass that are ready, and the next bucket to reduce. Buckets
/// are taken in ascending order, each once. Not thread-safe.
class PassProgress {
 public:
  /// `bucket_of`: the bucket of each parameter's gradient.
  PassProgress(const std::vector<std::size_t>& bucket_of, std::size_t n_buckets);

  [[nodiscard]] bool is_ready(std::size_t parameter) const { return is_ready_[parameter]; }

  /// Returns true if the bucket of the parameter's gradient has been taken.
  [[nodiscard]] bool is_taken(std::size_t parameter) const;

  /// Marks the parameter's gradient as ready. Each parameter becomes ready once, by mark_ready() or
  /// mark_absent().
  void mark_ready(std::size_t parameter);

  /// Marks the parameter as ready without a gradient in this pass.
  void mark_absent(std::size_t parameter);

  [[nodiscard]] bool is_absent(std::size_t parameter) const { return is_absent_[parameter]; }

  /// Returns the parameters that are not ready, in ascending order.
  [[nodiscard]] std::vector<std::size_t> find_missing() const;

  /// Takes and returns the next bucket if all its gradients are ready; std::nullopt otherwise.
  [[nodiscard]] std::optional<std::size_t> take_full_bucket();

  /// Takes and returns the next bucket, full or not; std::nullopt after the last bucket.
  [[nodiscard]] std::optional<std::size_t> take_bucket();

  /// Returns all parameters in the order in which their gradients arrived; parameters without a
  /// gradient come last.
  [[nodiscard]] std::vector<std::size_t> order() const;

 private:
  void count_ready(std::size_t parameter);

  std::vector<std::size_t> bucket_of_;
  std::vector<bool> is_ready_;
  std::vector<bool> is_absent_;
  std::vector<std::size_t> n_missing_;  // by bucket
  std::size_t n_taken_ = 0;
  std::vector<std::size_t> order_;  // without absent parameters
};

/// Order of the parameters' gradients in the buckets: descending until the first pass has shown the
/// order in which gradients arrive. Owned by the Reducer. Not thread-safe.
class GradientOrder {
 public:
  explicit GradientOrder(std::size_t n_parameters);

  [[nodiscard]] const std::vector<std::size_t>& present() const { return present_; }

  /// Adds `n_parameters` parameters with the highest indices. The new gradients are last in the
  /// order until the next pass has shown the actual positions.
  void add(std::size_t n_parameters);

  /// Records the order of gradients of a complete pass. Only the first pass after construction or
  /// add() counts.
  void observe(const std::vector<std::size_t>& seen);

  /// Called before the next pass on every rank. A collective operation if the previous pass was the
  /// first one: all ranks take the order that rank 0 observed. Returns true if present() has
  /// changed.
  bool agree(ProcessGroup& group, std::optional<std::chrono::milliseconds> timeout);

 private:
  std::vector<std::size_t> present_;
  std::vector<std::size_t> seen_;  // order in the first pass, until the ranks agree
  bool is_agreed_ = false;
};

}  // namespace unisono::ddp
