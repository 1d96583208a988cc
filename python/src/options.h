#pragma once

#include <chrono>
#include <string>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "unisono/base/reduction.h"

namespace unisono::python {

/// User-visible options of a group.
class Options final : public c10d::Backend::Options {
 public:
  explicit Options(std::chrono::milliseconds group_timeout = kBackendDefaultTimeout)
      : c10d::Backend::Options("unisono", group_timeout) {}

  /// Returns a copy of all options, for a group that is split off. Overrides a virtual function of
  /// torch 2.14 and later.
  [[nodiscard]] c10::intrusive_ptr<c10d::Backend::Options> clone() const {
    return c10::make_intrusive<Options>(*this);
  }

  /// Algorithm of all_reduce.
  [[nodiscard]] Algorithm algorithm() const { return algorithm_; }

  /// Sets the algorithm by its name in messages: "auto", "ring", ... Throws std::invalid_argument
  /// with the known names.
  void set_algorithm(const std::string& name);

 private:
  Algorithm algorithm_ = Algorithm::kAuto;
};

}  // namespace unisono::python
