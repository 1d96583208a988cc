#include "unisono/torch/optim/weight_average.h"

#include <string>
#include <unordered_map>
#include <utility>

#include <c10/core/GradMode.h>

#include "unisono/torch/optim/check_argument.h"

namespace unisono::optim {

WeightAverage::WeightAverage(std::vector<at::Tensor> tensors, std::optional<double> decay)
    : tensors_(std::move(tensors)), decay_(decay) {
  std::unordered_map<const void*, std::size_t> known;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const auto [first, is_new] = known.emplace(tensors_[i].unsafeGetTensorImpl(), i);
    if (is_new) {
      places_.push_back(i);
    }
    values_.push_back(is_new ? tensors_[i].detach().clone() : values_[first->second]);
  }
}

WeightAverage WeightAverage::exponential(std::vector<at::Tensor> tensors, double decay) {
  check_value(decay >= 0 && decay <= 1, "WeightAverage", "decay", decay, "from 0 to 1");
  return {std::move(tensors), decay};
}

WeightAverage WeightAverage::uniform(std::vector<at::Tensor> tensors) {
  return {std::move(tensors), std::nullopt};
}

void WeightAverage::check_not_swapped() const {
  check_argument(!is_swapped_, "WeightAverage", "the model has the averages; swap() first");
}

void WeightAverage::update() {
  check_not_swapped();
  const c10::NoGradGuard no_grad;
  const double weight = decay_ ? 1 - *decay_ : 1 / static_cast<double>(n_updates_ + 1);
  for (const std::size_t i : places_) {
    if (n_updates_ > 0 && values_[i].is_floating_point()) {
      values_[i].lerp_(tensors_[i], weight);
    } else {
      values_[i].copy_(tensors_[i]);
    }
  }
  ++n_updates_;
}

void WeightAverage::swap() {
  const c10::NoGradGuard no_grad;
  for (const std::size_t i : places_) {
    const at::Tensor value = tensors_[i].clone();
    tensors_[i].copy_(values_[i]);
    values_[i].copy_(value);
  }
  is_swapped_ = !is_swapped_;
}

void WeightAverage::restore(const std::vector<at::Tensor>& values, std::int64_t n_updates) {
  check_not_swapped();
  check_argument(values.size() == values_.size(),
                 "WeightAverage",
                 "restore() has " + std::to_string(values.size()) + " values for " +
                     std::to_string(values_.size()) + " tensors; it needs a value for each tensor");
  for (std::size_t i = 0; i < values.size(); ++i) {
    check_argument(values[i].sizes() == values_[i].sizes(),
                   "WeightAverage",
                   "a value has other sizes than its tensor");
  }
  const c10::NoGradGuard no_grad;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values_[i].copy_(values[i]);
  }
  n_updates_ = n_updates;
}

}  // namespace unisono::optim
