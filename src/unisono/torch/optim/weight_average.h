#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace unisono::optim {

/// The average of a model's values over its training, as Python's torch.optim.swa_utils has it: it
/// often generalizes better than the last values. Equal on every rank where the values are. A
/// tensor that comes twice has one average, which is there twice.
///
///     auto average = unisono::optim::WeightAverage::exponential(model.parameters());
///     ...
///       optimizer.step();
///       average.update();
///     ...
///     average.swap();  // the model has the averages now
///     evaluate(model);
///     average.swap();  // and trains on
class WeightAverage {
 public:
  /// EMA: an update takes `decay` of what was and `1 - decay` of what is. The first one copies.
  /// Throws Error(kInvalidArgument) unless 0 <= decay <= 1.
  [[nodiscard]] static WeightAverage exponential(std::vector<at::Tensor> tensors,
                                                 double decay = 0.999);

  /// SWA: the mean of all updates.
  [[nodiscard]] static WeightAverage uniform(std::vector<at::Tensor> tensors);

  /// Takes the tensors' values into the average; those of integers are copied. Throws
  /// Error(kInvalidArgument) while swapped.
  void update();

  /// Exchanges, in place, the tensors' values with the averages.
  void swap();

  /// The averages, in the order of the tensors: to save, with n_updates().
  [[nodiscard]] const std::vector<at::Tensor>& values() const { return values_; }

  [[nodiscard]] std::int64_t n_updates() const { return n_updates_; }

  /// Goes on with what was saved. Throws Error(kInvalidArgument) while swapped, or unless there is
  /// a value of the right sizes for each tensor.
  void restore(const std::vector<at::Tensor>& values, std::int64_t n_updates);

 private:
  WeightAverage(std::vector<at::Tensor> tensors, std::optional<double> decay);

  void check_not_swapped() const;

  std::vector<at::Tensor> tensors_;
  std::vector<at::Tensor> values_;
  std::vector<std::size_t> places_;  // in both, where a tensor comes first
  std::optional<double> decay_;
  std::int64_t n_updates_ = 0;
  bool is_swapped_ = false;
};

}  // namespace unisono::optim
