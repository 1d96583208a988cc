#pragma once

#include <memory>
#include <utility>

#include <torch/custom_class.h>

#include "unisono/comm/process_group.h"

namespace unisono {

/// A process group in a form that autograd can save, for a backward pass that communicates.
struct SavedGroup : ::torch::CustomClassHolder {
  explicit SavedGroup(std::shared_ptr<ProcessGroup> to_save) : group(std::move(to_save)) {}

  std::shared_ptr<ProcessGroup> group;  // shared with the module
};

}  // namespace unisono
