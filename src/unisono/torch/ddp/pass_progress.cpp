#include "unisono/torch/ddp/pass_progress.h"

#include <cstddef>
#include <optional>
#include <vector>

#include "unisono/base/error.h"

namespace unisono::ddp {

PassProgress::PassProgress(const std::vector<std::size_t>& bucket_of, std::size_t n_buckets)
    : bucket_of_(bucket_of),
      is_ready_(bucket_of.size(), false),
      is_absent_(bucket_of.size(), false),
      n_missing_(n_buckets, 0) {
  for (const std::size_t bucket : bucket_of_) {
    ++n_missing_[bucket];
  }
  order_.reserve(bucket_of_.size());
}

bool PassProgress::is_taken(std::size_t parameter) const {
  return bucket_of_[parameter] < n_taken_;
}

void PassProgress::mark_ready(std::size_t parameter) {
  count_ready(parameter);
  order_.push_back(parameter);
}

void PassProgress::mark_absent(std::size_t parameter) {
  count_ready(parameter);
  is_absent_[parameter] = true;
}

void PassProgress::count_ready(std::size_t parameter) {
  UNISONO_CHECK(!is_ready_[parameter], "a gradient became ready twice");
  is_ready_[parameter] = true;
  --n_missing_[bucket_of_[parameter]];
}

std::vector<std::size_t> PassProgress::order() const {
  std::vector<std::size_t> order = order_;
  for (std::size_t i = 0; i < is_ready_.size(); ++i) {
    if (!is_ready_[i] || is_absent_[i]) {
      order.push_back(i);
    }
  }
  return order;
}

std::vector<std::size_t> PassProgress::find_missing() const {
  std::vector<std::size_t> missing;
  for (std::size_t i = 0; i < is_ready_.size(); ++i) {
    if (!is_ready_[i]) {
      missing.push_back(i);
    }
  }
  return missing;
}

std::optional<std::size_t> PassProgress::take_full_bucket() {
  if (n_taken_ == n_missing_.size() || n_missing_[n_taken_] > 0) {
    return std::nullopt;
  }
  return n_taken_++;
}

std::optional<std::size_t> PassProgress::take_bucket() {
  if (n_taken_ == n_missing_.size()) {
    return std::nullopt;
  }
  return n_taken_++;
}

}  // namespace unisono::ddp
