#include "unisono/torch/parallel/pipeline/stage_gradients.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include "unisono/base/error.h"
#include "unisono/torch/parallel/pipeline/stage_part.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::parallel {

StageGradients::StageGradients(const std::map<int, StagePart>& parts,
                               const std::vector<Tie>& ties) {
  for (const auto& [stage, part] : parts) {
    std::vector<at::Tensor>& trained = parameters_[stage];
    for (const NamedTensor& parameter : part.parameters()) {
      if (parameter.tensor.requires_grad()) {
        trained.push_back(parameter.tensor);
      }
      for (const Tie& tie : ties) {
        const PlacedParameter place{.stage = stage, .name = parameter.name};
        if (parameter.tensor.requires_grad() && std::ranges::find(tie, place) != tie.end()) {
          tied_.push_back({.place = place, .parameter = parameter.tensor});
        }
      }
    }
  }
}

void StageGradients::begin() {
  before_.clear();
  for (Tied& tied : tied_) {
    tied.gradient.reset();
    const bool is_known = std::ranges::any_of(
        before_, [&](const Before& before) { return before.parameter.is_same(tied.parameter); });
    if (!is_known) {
      before_.push_back({.parameter = tied.parameter, .gradient = tied.parameter.grad()});
      tied.parameter.mutable_grad().reset();
    }
  }
}

void StageGradients::before_backward(int stage) {
  for (Tied& tied : tied_) {
    if (tied.place.stage == stage) {
      tied.parameter.mutable_grad() = std::exchange(tied.gradient, at::Tensor());
    }
  }
}

void StageGradients::after_backward(int stage) {
  for (Tied& tied : tied_) {
    if (tied.place.stage == stage) {
      tied.gradient = std::exchange(tied.parameter.mutable_grad(), at::Tensor());
    }
  }
}

const StageGradients::Tied* StageGradients::find(int stage, const at::Tensor& parameter) const {
  const auto found = std::ranges::find_if(tied_, [&](const Tied& tied) {
    return tied.place.stage == stage && tied.parameter.is_same(parameter);
  });
  return found == tied_.end() ? nullptr : &*found;
}

std::vector<at::Tensor> StageGradients::of_stage(int stage) const {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters_.at(stage)) {
    const Tied* const tied = find(stage, parameter);
    gradients.push_back(tied != nullptr ? tied->gradient : parameter.grad());
  }
  return gradients;
}

void StageGradients::set(int stage, const std::vector<at::Tensor>& gradients) {
  const std::vector<at::Tensor>& parameters = parameters_.at(stage);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto found = std::ranges::find_if(tied_, [&](const Tied& tied) {
      return tied.place.stage == stage && tied.parameter.is_same(parameters[i]);
    });
    if (found != tied_.end()) {
      found->gradient = gradients[i];
    } else {
      parameters[i].mutable_grad() = gradients[i];
    }
  }
}

at::Tensor StageGradients::of(const PlacedParameter& tied) const {
  const auto found =
      std::ranges::find_if(tied_, [&](const Tied& one) { return one.place == tied; });
  return found == tied_.end() ? at::Tensor() : found->gradient;
}

void StageGradients::set_sum(const PlacedParameter& tied, const at::Tensor& sum) {
  for (const Tied& one : tied_) {
    if (one.place == tied) {
      before(one.parameter).sum = sum;
    }
  }
}

StageGradients::Before& StageGradients::before(const at::Tensor& parameter) {
  const auto found = std::ranges::find_if(
      before_, [&](const Before& before) { return before.parameter.is_same(parameter); });
  UNISONO_CHECK(found != before_.end(), "a tied parameter without a step");
  return *found;
}

void StageGradients::end() {
  const c10::NoGradGuard no_grad;
  for (Before& before : before_) {
    at::Tensor& gradient = before.parameter.mutable_grad();
    gradient = before.gradient;
    if (before.sum.defined()) {
      gradient = gradient.defined() ? gradient.add(before.sum) : before.sum.clone();
    }
  }
  before_.clear();
}

}  // namespace unisono::parallel
