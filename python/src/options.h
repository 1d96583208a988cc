#pragma once

#include <chrono>
#include <string>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "unisono/base/algorithm.h"
#include "unisono/base/dtype.h"
#include "unisono/base/reduce_kind.h"

namespace unisono::python {

/// What users may choose for a group: of all_reduce.
class Options final : public c10d::Backend::Options {
 public:
  explicit Options(std::chrono::milliseconds group_timeout = kBackendDefaultTimeout)
      : c10d::Backend::Options("unisono", group_timeout) {}

  /// A copy of all of it, for a group that is split off. torch asks for it from 2.14 on, where this
  /// overrides; before, there is nothing to override.
  [[nodiscard]] c10::intrusive_ptr<c10d::Backend::Options> clone() const {
    return c10::make_intrusive<Options>(*this);
  }

  /// The names, as in messages: "auto", "ring", ...; "none", "bfloat16", "fp8".
  [[nodiscard]] std::string algorithm() const { return to_string(algorithm_); }

  [[nodiscard]] std::string compression() const;

  /// Both throw std::invalid_argument with the names that there are, or where the two don't go
  /// together.
  void set_algorithm(const std::string& name);
  void set_compression(const std::string& name);

  /// How to carry out one of them: compressed, if that is wanted and it is one of those that can
  /// be.
  [[nodiscard]] Algorithm algorithm_for(DType dtype, ReduceKind kind) const {
    return compressed_ != Algorithm::kAuto && is_compressible(dtype, kind) ? compressed_
                                                                           : algorithm_;
  }

 private:
  Algorithm algorithm_ = Algorithm::kAuto;
  Algorithm compressed_ = Algorithm::kAuto;  // kAuto: nothing is.
};

}  // namespace unisono::python
