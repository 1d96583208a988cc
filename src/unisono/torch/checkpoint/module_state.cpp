#include "unisono/torch/checkpoint/module_state.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include "unisono/base/error.h"
#include "unisono/torch/checkpoint/tensor_state.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono {
namespace {

constexpr const char* kWrapperPrefix = "module.";
constexpr std::size_t kMostNamed = 10;

// Names as the module has them.
TensorState unwrapped(const TensorState& state) {
  const bool is_wrapped = std::all_of(state.begin(), state.end(), [](const auto& entry) {
    return entry.first.starts_with(kWrapperPrefix);
  });
  return is_wrapped ? state_below(state, kWrapperPrefix) : state;
}

std::vector<std::string> differences(const TensorState& own, const TensorState& state) {
  std::vector<std::string> problems;
  for (const auto& [name, tensor] : own) {
    const auto found = state.find(name);
    if (found == state.end()) {
      problems.push_back("\"" + name + "\" is missing");
    } else if (found->second.sizes() != tensor.sizes() ||
               found->second.scalar_type() != tensor.scalar_type()) {
      problems.push_back("\"" + name + "\" is " + describe(found->second) +
                         ", but the module has " + describe(tensor));
    }
  }
  for (const auto& [name, tensor] : state) {
    if (!own.contains(name)) {
      problems.push_back("\"" + name + "\" is not the module's");
    }
  }
  return problems;
}

}  // namespace

TensorState module_state(const ::torch::nn::Module& module) {
  TensorState state;
  const auto add = [&](const auto& named) {
    for (const auto& item : named) {
      if (item.value().defined()) {
        state.emplace(item.key(), item.value().detach());
      }
    }
  };
  add(module.named_parameters());
  add(module.named_buffers());
  return state;
}

void load_module_state(::torch::nn::Module& module, const TensorState& state) {
  const TensorState own = module_state(module);
  // A module may itself have a child of that name.
  TensorState given = differences(own, state).empty() ? state : unwrapped(state);
  const std::vector<std::string> problems = differences(own, given);
  if (!problems.empty()) {
    std::string message = "load a module's state: ";
    for (std::size_t i = 0; i < std::min(problems.size(), kMostNamed); ++i) {
      message += (i == 0 ? "" : "; ") + problems[i];
    }
    if (problems.size() > kMostNamed) {
      message += "; and " + std::to_string(problems.size() - kMostNamed) + " more";
    }
    throw Error(ErrorCode::kInvalidArgument, message);
  }
  const c10::NoGradGuard no_grad;
  for (const auto& [name, tensor] : own) {
    // Through the detached alias: it has the same memory.
    at::Tensor(tensor).copy_(given.at(name));
  }
}

}  // namespace unisono
