#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {

/// Fingerprints of a part of the parameters' memory each, another part every time: after kParts of
/// them all of it was looked at, at the cost of one hash over it.
class ParameterSamples {
 public:
  static constexpr std::size_t kParts = 128;
  /// A part is as large as that, however small the model is.
  static constexpr std::size_t kLeastBytes = 2048;

  /// `parameters` must outlive the object, and may grow. Those whose elements do not lie together
  /// are left out.
  explicit ParameterSamples(const std::vector<NamedTensor>& parameters) : parameters_(parameters) {}

  /// The next part's. Equal parameters give equal ones, others equal ones once in 65536 times.
  [[nodiscard]] std::uint16_t take();

  /// Goes on to the next part.
  void skip() { ++n_taken_; }

 private:
  const std::vector<NamedTensor>& parameters_;
  std::uint64_t n_taken_ = 0;
};

}  // namespace unisono::ddp
