#include "unisono/torch/parallel/pipeline/gradients.h"

#include <algorithm>
#include <cstdint>

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/torch/tensor/named_tensor.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::parallel {

using pipeline::as_index;

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

namespace {

int rank_of(const PipelineLayout& plan, const PlacedParameter& place) {
  return plan.schedule.rank_of_stage[as_index(place.stage)];
}

at::Tensor parameter_at(const PipelineLayout& plan, const PlacedParameter& place) {
  for (const NamedTensor& parameter : plan.parts.at(place.stage).parameters()) {
    if (parameter.name == place.name) {
      return parameter.tensor;
    }
  }
  UNISONO_CHECK(false, "a tied parameter that its stage does not have");
}

StageMessage message_of(const at::Tensor& tensor) {
  return {.tensors = {tensor.defined() ? tensor.detach() : tensor}, .needs_gradient = {false}};
}

MessageLabel label_of(std::size_t slot, const PlacedParameter& parameter) {
  return {.slot = slot, .text = "tied parameter '" + parameter.name + "'"};
}

bool is_alike(const at::Tensor& parameter, const at::Tensor& first) {
  return parameter.sizes() == first.sizes() && parameter.scalar_type() == first.scalar_type();
}

std::string describe_difference(const at::Tensor& parameter,
                                const PlacedParameter& place,
                                const at::Tensor& first,
                                const PlacedParameter& of_first) {
  return "Pipeline: parameter '" + place.name + "' of stage " + std::to_string(place.stage) +
         " is " + describe(parameter) + ", but is tied to '" + of_first.name + "' of stage " +
         std::to_string(of_first.stage) + ", which is " + describe(first);
}

// Calls one function for each pair of a tie's first member and another member: `near` where both
// are on this rank, `send` on the rank of the first, `receive` on the rank of the other.
template <class Send, class Receive, class Near>
void for_each_pair(const PipelineLayout& plan,
                   const std::vector<Tie>& ties,
                   std::size_t first_slot,
                   const Send& send,
                   const Receive& receive,
                   const Near& near) {
  const int rank = plan.group->rank();
  std::size_t slot = first_slot;
  for (const Tie& tie : ties) {
    for (std::size_t i = 1; i < tie.size(); ++i, ++slot) {
      const int first_rank = rank_of(plan, tie.front());
      const int other_rank = rank_of(plan, tie[i]);
      if (first_rank == rank && other_rank == rank) {
        near(tie.front(), tie[i]);
      } else if (first_rank == rank) {
        send(tie.front(), tie[i], other_rank, slot);
      } else if (other_rank == rank) {
        receive(tie.front(), tie[i], first_rank, slot);
      }
    }
  }
}

}  // namespace

std::size_t n_tied_slots(const std::vector<Tie>& ties) {
  std::size_t n_pairs = 0;
  for (const Tie& tie : ties) {
    n_pairs += tie.size() - 1;
  }
  return 2 * n_pairs;  // One message in each direction.
}

std::string copy_first_values(const PipelineLayout& plan,
                              const std::vector<Tie>& ties,
                              const TiedMessages& messages) {
  const c10::NoGradGuard no_grad;
  Transfers& transfers = messages.transfers;
  std::string problem;
  const auto set =
      [&](const PlacedParameter& first, const PlacedParameter& other, const at::Tensor& values) {
        const at::Tensor parameter = parameter_at(plan, other);
        if (!is_alike(parameter, values)) {
          problem = describe_difference(parameter, other, values, first);
        } else if (!parameter.is_same(values)) {
          parameter.copy_(values);
        }
      };
  for_each_pair(
      plan,
      ties,
      messages.first_slot,
      [&](const auto& first, const auto& /*other*/, int rank, std::size_t slot) {
        transfers.send(rank, label_of(slot, first), message_of(parameter_at(plan, first)));
      },
      [&](const auto& first, const auto& other, int rank, std::size_t slot) {
        transfers.receive(rank, label_of(slot, first));
        set(first, other, transfers.await(slot).tensors.at(0));
      },
      [&](const auto& first, const auto& other) { set(first, other, parameter_at(plan, first)); });
  return problem;
}

void sum_tied_gradients(const PipelineLayout& plan,
                        const std::vector<Tie>& ties,
                        const TiedMessages& messages,
                        StageGradients& gradients) {
  const c10::NoGradGuard no_grad;
  Transfers& transfers = messages.transfers;
  const std::size_t back = messages.first_slot + n_tied_slots(ties) / 2;
  std::map<PlacedParameter, at::Tensor> sums;
  const auto add = [&](const PlacedParameter& first, const at::Tensor& gradient) {
    const auto [sum, is_new] = sums.emplace(first, gradients.of(first));
    if (gradient.defined()) {
      sum->second = sum->second.defined() ? sum->second.add(gradient) : gradient;
    }
  };
  for_each_pair(
      plan,
      ties,
      messages.first_slot,
      [&](const auto& first, const auto& /*other*/, int rank, std::size_t slot) {
        transfers.receive(rank, label_of(slot, first));
        add(first, transfers.await(slot).tensors.at(0));
      },
      [&](const auto& first, const auto& other, int rank, std::size_t slot) {
        transfers.send(rank, label_of(slot, first), message_of(gradients.of(other)));
      },
      [&](const auto& first, const auto& other) { add(first, gradients.of(other)); });
  for (const auto& [first, sum] : sums) {
    gradients.set_sum(first, sum);
  }
  for_each_pair(
      plan,
      ties,
      back,
      [&](const auto& first, const auto& /*other*/, int rank, std::size_t slot) {
        transfers.send(rank, label_of(slot, first), message_of(sums.at(first)));
      },
      [&](const auto& first, const auto& other, int rank, std::size_t slot) {
        transfers.receive(rank, label_of(slot, first));
        gradients.set_sum(other, transfers.await(slot).tensors.at(0));
      },
      [&](const auto& first, const auto& other) { gradients.set_sum(other, sums.at(first)); });
}

ReplicaGradients::ReplicaGradients(std::shared_ptr<ProcessGroup> group,
                                   std::vector<int> order,
                                   const std::map<int, std::vector<at::Tensor>>& parameters,
                                   std::optional<std::chrono::milliseconds> timeout)
    : group_(std::move(group)),
      order_(std::move(order)),
      parameters_(parameters),
      timeout_(timeout) {
  for (const auto& [stage, of_stage] : parameters) {
    std::map<at::ScalarType, std::vector<std::size_t>> by_type;
    stages_[stage];
    for (std::size_t i = 0; i < of_stage.size(); ++i) {
      by_type[of_stage[i].scalar_type()].push_back(i);
    }
    for (auto& [type, places] : by_type) {
      auto count = static_cast<std::int64_t>(places.size());
      for (const std::size_t place : places) {
        count += of_stage[place].numel();
      }
      const at::Tensor& first = of_stage[places.front()];
      stages_[stage].flats.push_back(
          {.tensor = first.is_cpu() ? allocate_tensor(*group_, {count}, type)
                                    : at::empty({count}, first.options().requires_grad(false)),
           .parameters = std::move(places)});
    }
  }
}

void ReplicaGradients::add(int stage, std::vector<at::Tensor> gradients) {
  stages_[stage].gradients = std::move(gradients);
  while (n_launched_ < order_.size() && stages_[order_[n_launched_]].gradients) {
    launch(order_[n_launched_++]);
  }
}

void ReplicaGradients::launch(int stage) {
  const c10::NoGradGuard no_grad;
  OfStage& of_stage = stages_[stage];
  for (const Flat& flat : of_stage.flats) {
    flat.tensor.zero_();
    auto offset = static_cast<std::int64_t>(flat.parameters.size());
    for (std::size_t i = 0; i < flat.parameters.size(); ++i) {
      const at::Tensor& gradient = (*of_stage.gradients)[flat.parameters[i]];
      if (gradient.defined()) {
        if (gradient.layout() != at::kStrided) {
          throw Error(ErrorCode::kInvalidArgument,
                      "stage " + std::to_string(stage) +
                          " has a sparse gradient, which replicas can't average: build the layer "
                          "with sparse(false)");
        }
        flat.tensor[static_cast<std::int64_t>(i)].fill_(1);
        flat.tensor.narrow(0, offset, gradient.numel()).view(gradient.sizes()).copy_(gradient);
      }
      offset += parameters_[stage][flat.parameters[i]].numel();
    }
    const std::string label = "gradients of stage " + std::to_string(stage);
    const Work work = with_label("all_reduce", label, [&] {
      return all_reduce_async(
          *group_, flat.tensor, {.op = kAvg, .timeout = timeout_, .label = label});
    });
    launched_.push_back({.label = label, .work = work});
  }
}

std::map<int, std::vector<at::Tensor>> ReplicaGradients::finish() {
  UNISONO_CHECK(n_launched_ == order_.size(), "a stage without gradients");
  for (const Launched& launched : launched_) {
    with_label("all_reduce", launched.label, [&] { launched.work.wait(); });
  }
  launched_.clear();
  n_launched_ = 0;
  const c10::NoGradGuard no_grad;
  std::map<int, std::vector<at::Tensor>> means;
  for (auto& [stage, of_stage] : stages_) {
    std::vector<at::Tensor> gradients = std::move(*of_stage.gradients);
    of_stage.gradients.reset();
    for (const Flat& flat : of_stage.flats) {
      auto offset = static_cast<std::int64_t>(flat.parameters.size());
      for (std::size_t i = 0; i < flat.parameters.size(); ++i) {
        const std::size_t place = flat.parameters[i];
        const at::Tensor& like = parameters_[stage][place];
        const at::Tensor mean = flat.tensor.narrow(0, offset, like.numel()).view(like.sizes());
        offset += like.numel();
        if (gradients[place].defined()) {
          gradients[place].copy_(mean);
        } else if (flat.tensor[static_cast<std::int64_t>(i)].item<double>() > 0) {
          gradients[place] = mean.clone();
        }
      }
    }
    means[stage] = std::move(gradients);
  }
  return means;
}

}  // namespace unisono::parallel
