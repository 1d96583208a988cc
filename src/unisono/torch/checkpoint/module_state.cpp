#include "unisono/torch/checkpoint/module_state.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include "unisono/base/error.h"
#include "unisono/torch/checkpoint/tensor_state.h"
#include "unisono/torch/tensor/named_tensor.h"
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

std::vector<NamedTensor> tensors_of_module(const ::torch::nn::Module& module) {
  std::vector<NamedTensor> tensors = distinct_tensors(module.named_parameters());
  append_distinct(module.named_buffers(), "", tensors);
  return tensors;
}

std::string quote(const std::string& name) {
  return "\"" + name + "\"";
}

// The state's value for one tensor of the module, under any of its names; null where it has none.
const at::Tensor* value_in(const TensorState& state, const NamedTensor& own) {
  for (const std::string& name : names_of(own)) {
    if (const auto found = state.find(name); found != state.end()) {
      return &found->second;
    }
  }
  return nullptr;
}

// Appends what is wrong with the state's values for one tensor of the module.
void find_differences(const NamedTensor& own,
                      const TensorState& state,
                      std::vector<std::string>& problems) {
  std::string others;
  std::string first;
  for (const std::string& name : names_of(own)) {
    others += name == own.name ? "" : (others.empty() ? " (or " : ", ") + quote(name);
    const auto found = state.find(name);
    if (found == state.end()) {
      continue;
    }
    const at::Tensor& tensor = found->second;
    if (tensor.sizes() != own.tensor.sizes() || tensor.scalar_type() != own.tensor.scalar_type()) {
      problems.push_back(quote(name) + " is " + describe(tensor) + ", but the module has " +
                         describe(own.tensor));
      return;
    }
    if (!first.empty() && !is_bit_equal(tensor, state.at(first))) {
      problems.push_back(quote(first) + " and " + quote(name) +
                         " are one tensor of the module, but differ in the state; leave one out");
      return;
    }
    first = name;
  }
  if (first.empty()) {
    problems.push_back(quote(own.name) + others + (others.empty() ? "" : ")") + " is missing");
  }
}

std::vector<std::string> differences(const std::vector<NamedTensor>& own,
                                     const TensorState& state) {
  std::vector<std::string> problems;
  std::set<std::string> known;
  for (const NamedTensor& named : own) {
    find_differences(named, state, problems);
    for (const std::string& name : names_of(named)) {
      known.insert(name);
    }
  }
  for (const auto& [name, tensor] : state) {
    if (!known.contains(name)) {
      problems.push_back(quote(name) + " is not the module's");
    }
  }
  return problems;
}

}  // namespace

TensorState module_state(const ::torch::nn::Module& module) {
  TensorState state;
  for (const NamedTensor& named : tensors_of_module(module)) {
    for (const std::string& name : names_of(named)) {
      state.emplace(name, named.tensor.detach());
    }
  }
  return state;
}

void load_module_state(::torch::nn::Module& module, const TensorState& state) {
  const std::vector<NamedTensor> own = tensors_of_module(module);
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
  for (const NamedTensor& named : own) {
    // Through a detached alias: it has the same memory.
    named.tensor.detach().copy_(*value_in(given, named));
  }
}

}  // namespace unisono
