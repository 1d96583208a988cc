#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {

/// A module's parameters and buffers as they were when it was wrapped, to find what was done to
/// them since that training can't go on with. New values are fine, also in new memory, which is
/// what torch::load() gives a tensor.
class WrappedTensors {
 public:
  WrappedTensors(std::vector<NamedTensor> parameters, const std::vector<NamedTensor>& buffers);

  [[nodiscard]] const std::vector<NamedTensor>& parameters() const { return parameters_; }

  /// The first tensor with another type, other sizes or another device than it had: "parameter
  /// 'fc.weight' is f64[10], but was f32[10] when the module was wrapped".
  [[nodiscard]] std::optional<std::string> find_conversion() const;

  /// The parameters that required no gradient when the module was wrapped, and were not taken
  /// since.
  [[nodiscard]] const std::vector<NamedTensor>& frozen() const { return frozen_; }

  /// Whether any of them requires one now.
  [[nodiscard]] bool has_thawed() const;

  /// Those which do.
  [[nodiscard]] std::vector<NamedTensor> thawed() const;

  /// They are frozen no more, whatever becomes of them.
  void take_thawed();

  /// Whether a module whose parameters() are these holds the wrapped ones, in their order: the
  /// quick look before find_replacement().
  [[nodiscard]] bool are_all_of(const std::vector<at::Tensor>& parameters) const;

  /// The first difference between the wrapped parameters and those that the module has now:
  /// "parameter 'fc.weight' was replaced by another tensor after the module was wrapped".
  [[nodiscard]] std::optional<std::string> find_replacement(
      const std::vector<NamedTensor>& parameters) const;

 private:
  // What a tensor must stay.
  struct Form {
    std::string what;  // "parameter 'fc.weight'"
    at::Tensor tensor;
    at::ScalarType type;
    at::Device device;
    std::vector<std::int64_t> sizes;
    std::string description;
  };

  static Form form_of(const std::string& kind, const NamedTensor& named);

  std::vector<NamedTensor> parameters_;
  std::vector<NamedTensor> frozen_;
  std::vector<Form> forms_;
};

}  // namespace unisono::ddp
