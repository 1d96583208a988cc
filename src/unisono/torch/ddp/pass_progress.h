#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace unisono::ddp {

/// Which gradients of one backward pass are there, and so which bucket is next. Buckets are taken
/// in the order of their numbers, each once.
class PassProgress {
 public:
  /// `bucket_of`: the bucket of each parameter's gradient.
  PassProgress(const std::vector<std::size_t>& bucket_of, std::size_t n_buckets);

  [[nodiscard]] bool is_ready(std::size_t parameter) const { return is_ready_[parameter]; }

  /// Whether the bucket of the parameter's gradient has been taken.
  [[nodiscard]] bool is_taken(std::size_t parameter) const;

  /// The parameter's gradient is there. Each parameter becomes ready once, this way or the next.
  void mark_ready(std::size_t parameter);

  /// The pass has no gradient for the parameter.
  void mark_absent(std::size_t parameter);

  [[nodiscard]] bool is_absent(std::size_t parameter) const { return is_absent_[parameter]; }

  [[nodiscard]] std::vector<std::size_t> find_missing() const;

  /// The next bucket, if all its gradients are ready.
  [[nodiscard]] std::optional<std::size_t> take_full_bucket();

  /// The next bucket, full or not; nothing after the last.
  [[nodiscard]] std::optional<std::size_t> take_bucket();

  /// All parameters, in the order in which their gradients came; those without one last.
  [[nodiscard]] std::vector<std::size_t> order() const;

 private:
  void count_ready(std::size_t parameter);

  std::vector<std::size_t> bucket_of_;
  std::vector<bool> is_ready_;
  std::vector<bool> is_absent_;
  std::vector<std::size_t> n_missing_;  // by bucket
  std::size_t n_taken_ = 0;
  std::vector<std::size_t> order_;  // without the absent ones
};

}  // namespace unisono::ddp
