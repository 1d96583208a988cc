#include "unisono/torch/ddp/pass_progress.h"

#include <cstdint>
#include <span>
#include <utility>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/torch/ddp/bucket_plan.h"

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

GradientOrder::GradientOrder(std::size_t n_parameters) : present_(reverse_order(n_parameters)) {}

void GradientOrder::add(std::size_t n_parameters) {
  const std::size_t n_before = present_.size();
  for (const std::size_t parameter : reverse_order(n_parameters)) {
    present_.push_back(n_before + parameter);
  }
  seen_.clear();
  is_agreed_ = false;
}

void GradientOrder::observe(const std::vector<std::size_t>& seen) {
  if (!is_agreed_) {
    seen_ = seen;
  }
}

bool GradientOrder::agree(ProcessGroup& group, std::optional<std::chrono::milliseconds> timeout) {
  if (seen_.empty()) {
    return false;
  }
  std::vector<std::int64_t> numbers(seen_.begin(), seen_.end());
  group.broadcast(as_buffer(std::span(numbers)),
                  {.timeout = timeout, .label = "order of gradients"});
  seen_.clear();
  is_agreed_ = true;
  const std::vector<std::size_t> before = std::exchange(present_, {numbers.begin(), numbers.end()});
  return present_ != before;
}

}  // namespace unisono::ddp
