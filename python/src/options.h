#pragma once

#include <chrono>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "unisono/base/algorithm.h"

namespace unisono::python {

/// What users may choose for a group.
struct Options final : c10d::Backend::Options {
  explicit Options(std::chrono::milliseconds group_timeout = kBackendDefaultTimeout)
      : c10d::Backend::Options("unisono", group_timeout) {}

  Algorithm algorithm = Algorithm::kAuto;  ///< Of all_reduce, where the caller names none.
};

}  // namespace unisono::python
