#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace unisono::optim {

/// Average of a model's values over the training, like Python's torch.optim.swa_utils; often
/// generalizes better than the last values. Equal on every rank if the values are. A tensor that is
/// listed twice has one average, which appears twice in values().
///
///     auto average = unisono::optim::WeightAverage::exponential(model.parameters());
///     ...
///       optimizer.step();
///       average.update();
///     ...
///     average.swap();  // the model holds the averages now
///     evaluate(model);
///     average.swap();  // training continues
///
/// Shares the tensors with the model. Not thread-safe.
class WeightAverage {
 public:
  /// EMA: an update sets the average to `decay` times the average plus `1 - decay` times the
  /// present values. The first update copies the values. Throws Error(kInvalidArgument) unless 0 <=
  /// decay <= 1.
  [[nodiscard]] static WeightAverage exponential(std::vector<at::Tensor> tensors,
                                                 double decay = 0.999);

  /// SWA: the mean of the values at all updates.
  [[nodiscard]] static WeightAverage uniform(std::vector<at::Tensor> tensors);

  /// Includes the tensors' present values in the average; integer tensors are copied. Throws
  /// Error(kInvalidArgument) while swapped.
  void update();

  /// Exchanges the tensors' values with the averages, in place.
  void swap();

  /// The averages, in the order of the tensors. Save them together with n_updates().
  [[nodiscard]] const std::vector<at::Tensor>& values() const { return values_; }

  [[nodiscard]] std::int64_t n_updates() const { return n_updates_; }

  /// Continues from saved averages. Throws Error(kInvalidArgument) while swapped, or unless
  /// `values` has a tensor of the right sizes for each tensor.
  void restore(const std::vector<at::Tensor>& values, std::int64_t n_updates);

 private:
  WeightAverage(std::vector<at::Tensor> tensors, std::optional<double> decay);

  void check_not_swapped() const;

  std::vector<at::Tensor> tensors_;
  std::vector<at::Tensor> values_;
  std::vector<std::size_t> places_;  // indices of first occurrences, in both lists
  std::optional<double> decay_;
  std::int64_t n_updates_ = 0;
  bool is_swapped_ = false;
};

}  // namespace unisono::optim
