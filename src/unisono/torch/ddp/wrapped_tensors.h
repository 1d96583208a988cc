#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {

/// Snapshot of a module's parameters and buffers at wrapping, to find later changes that training
/// does not support. New values are supported, even in new memory, as assigned by torch::load().
/// Owned by the Replica. Not thread-safe.
class WrappedTensors {
 public:
  /// Records type, sizes and device of each tensor.
  WrappedTensors(std::vector<NamedTensor> parameters, const std::vector<NamedTensor>& buffers);

  [[nodiscard]] const std::vector<NamedTensor>& parameters() const { return parameters_; }

  /// Returns a description of the first tensor with a changed type, sizes or device, such as
  /// "parameter 'fc.weight' is f64[10], but was f32[10] when the module was wrapped". Returns
  /// std::nullopt if there is no such tensor.
  [[nodiscard]] std::optional<std::string> find_conversion() const;

  /// Parameters that required no gradient when the module was wrapped, except for those removed by
  /// take_thawed().
  [[nodiscard]] const std::vector<NamedTensor>& frozen() const { return frozen_; }

  /// Returns true if a frozen parameter requires a gradient now.
  [[nodiscard]] bool has_thawed() const;

  /// Returns the frozen parameters that require a gradient now.
  [[nodiscard]] std::vector<NamedTensor> thawed() const;

  /// Removes the parameters that require a gradient now from frozen().
  void take_thawed();

  /// Returns true if `parameters`, of the present module, contain the wrapped ones in order and no
  /// others. A quick check before find_replacement().
  [[nodiscard]] bool are_all_of(const std::vector<at::Tensor>& parameters) const;

  /// Returns the first difference between the wrapped parameters and the module's present
  /// parameters, such as "parameter 'fc.weight' was replaced by another tensor after the module was
  /// wrapped".
  [[nodiscard]] std::optional<std::string> find_replacement(
      const std::vector<NamedTensor>& parameters) const;

 private:
  // The properties of a tensor that must not change.
  struct Form {
    std::string what;  // "parameter 'fc.weight'"
    at::Tensor tensor;
    at::ScalarType type;
    at::Device device;
    std::vector<std::int64_t> sizes;
    std::string description;
  };

  /// Records the present form of a tensor.
  static Form form_of(const std::string& kind, const NamedTensor& named);

  std::vector<NamedTensor> parameters_;
  std::vector<NamedTensor> frozen_;
  std::vector<Form> forms_;
};

}  // namespace unisono::ddp
