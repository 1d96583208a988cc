// What a rank has of the model: parameters and buffers under their names in the whole of it.

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include "unisono/base/error.h"
#include "unisono/torch/parallel/pipeline/pipeline_impl.h"
#include "unisono/torch/parallel/pipeline/stage_gradients.h"
#include "unisono/torch/parallel/pipeline/stage_part.h"
#include "unisono/torch/tensor/named_tensor.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::parallel {
namespace {

// Each tensor once, also where stages share it.
void append(const std::vector<NamedTensor>& from, std::vector<NamedTensor>& into) {
  for (const NamedTensor& named : from) {
    if (std::ranges::none_of(
            into, [&](const NamedTensor& other) { return other.tensor.is_same(named.tensor); })) {
      into.push_back(named);
    }
  }
}

}  // namespace

std::vector<NamedTensor> Pipeline::Impl::named_parameters() const {
  std::vector<NamedTensor> all;
  for (const auto& [stage, part] : plan_.parts) {
    std::vector<NamedTensor> of_part = part.parameters();
    for (NamedTensor& parameter : of_part) {
      parameter.aliases = names_in_whole(stage, parameter);
      std::erase(parameter.aliases, parameter.name);
    }
    append(of_part, all);
  }
  return all;
}

std::vector<NamedTensor> Pipeline::Impl::named_buffers() const {
  std::vector<NamedTensor> all;
  for (const auto& [stage, part] : plan_.parts) {
    append(part.buffers(), all);
  }
  return all;
}

// The names that a parameter may have in a whole model's state. The names of its tie come first, in
// an order that all ranks have, so that ranks agree on one value where a state has different ones.
std::vector<std::string> Pipeline::Impl::names_in_whole(int stage,
                                                        const NamedTensor& parameter) const {
  std::vector<std::string> names;
  for (const Tie& tie : ties_) {
    if (std::ranges::find(tie, PlacedParameter{.stage = stage, .name = parameter.name}) !=
        tie.end()) {
      std::ranges::transform(tie, std::back_inserter(names), &PlacedParameter::name);
    }
  }
  const std::vector<std::string> own = names_of(parameter);
  names.insert(names.end(), own.begin(), own.end());
  return names;
}

TensorState Pipeline::Impl::state() const {
  TensorState state;
  const auto add = [&](const NamedTensor& named) {
    for (const std::string& name : names_of(named)) {
      if (!state.emplace(name, named.tensor.detach()).second) {
        throw Error(ErrorCode::kInvalidArgument,
                    "Pipeline: two tensors are named '" + name +
                        "'; give the stages prefixes of their own");
      }
    }
  };
  for (const auto& [stage, part] : plan_.parts) {
    for (const NamedTensor& parameter : part.parameters()) {
      // Stages that are made apart may have the same name for a tied parameter: the first saves it.
      const bool is_first = is_first_of_tie({.stage = stage, .name = parameter.name});
      if (is_first || names_in_whole(stage, parameter).front() != parameter.name) {
        add(parameter);
      }
    }
    std::ranges::for_each(part.buffers(), add);
  }
  return state;
}

void Pipeline::Impl::load_state(const TensorState& state) {
  std::vector<std::pair<at::Tensor, at::Tensor>> values;
  const auto find = [&](const std::vector<std::string>& names, const at::Tensor& tensor) {
    const auto known =
        std::ranges::find_if(names, [&](const std::string& name) { return state.contains(name); });
    const std::string& name = known == names.end() ? names.front() : *known;
    const auto found = state.find(name);
    if (found == state.end()) {
      throw Error(ErrorCode::kInvalidArgument, "Pipeline: the state has no '" + name + "'");
    }
    if (found->second.sizes() != tensor.sizes() ||
        found->second.scalar_type() != tensor.scalar_type()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "Pipeline: '" + name + "' is " + describe(found->second) + " in the state, but " +
                      describe(tensor) + " in the model");
    }
    values.emplace_back(tensor, found->second);
  };
  for (const auto& [stage, part] : plan_.parts) {
    for (const NamedTensor& parameter : part.parameters()) {
      find(names_in_whole(stage, parameter), parameter.tensor);
    }
    for (const NamedTensor& buffer : part.buffers()) {
      find(names_of(buffer), buffer.tensor);
    }
  }
  const c10::NoGradGuard no_grad;
  for (const auto& [tensor, value] : values) {
    tensor.copy_(value);
  }
}

void Pipeline::Impl::train(bool on) const {
  for (const auto& [stage, part] : plan_.parts) {
    part.train(on);
  }
}

void Pipeline::Impl::zero_grad(bool set_to_none) const {
  for (const NamedTensor& parameter : named_parameters()) {
    at::Tensor& gradient = parameter.tensor.mutable_grad();
    if (set_to_none) {
      gradient.reset();
    } else if (gradient.defined()) {
      gradient.detach_();
      gradient.zero_();
    }
  }
}

bool Pipeline::Impl::is_first_of_tie(const PlacedParameter& place) const {
  return std::ranges::none_of(ties_, [&](const Tie& tie) {
    return std::find(tie.begin() + 1, tie.end(), place) != tie.end();
  });
}

std::vector<at::Tensor> Pipeline::Impl::own_gradients() const {
  std::vector<at::Tensor> gradients;
  for (const NamedTensor& parameter : named_parameters()) {
    if (parameter.tensor.grad().defined()) {
      gradients.push_back(parameter.tensor.grad());
    }
  }
  return gradients;
}

}  // namespace unisono::parallel
