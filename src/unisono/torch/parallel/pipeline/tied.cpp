#include "unisono/torch/parallel/pipeline/tied.h"

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include <c10/core/GradMode.h>

#include "unisono/base/error.h"
#include "unisono/pipeline/as_index.h"
#include "unisono/torch/parallel/pipeline/inbox.h"
#include "unisono/torch/parallel/pipeline/stage_gradients.h"
#include "unisono/torch/parallel/pipeline/stage_part.h"
#include "unisono/torch/parallel/pipeline/step_run.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::parallel {

using pipeline::as_index;

namespace {

int rank_of(const StepPlan& plan, const PlacedParameter& place) {
  return plan.schedule.rank_of_stage[as_index(place.stage)];
}

at::Tensor parameter_at(const StepPlan& plan, const PlacedParameter& place) {
  for (const NamedTensor& parameter : plan.parts.at(place.stage).parameters()) {
    if (parameter.name == place.name) {
      return parameter.tensor;
    }
  }
  UNISONO_CHECK(false, "a tied parameter that its stage does not have");
}

Delivery deliver(const at::Tensor& tensor) {
  return {.tensors = {tensor.defined() ? tensor.detach() : tensor}, .needs_gradient = {false}};
}

MessageLabel label_of(std::size_t place, const PlacedParameter& parameter) {
  return {.place = place, .text = "tied parameter '" + parameter.name + "'"};
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

// What this rank does with each member of a tie but the first: `near` where both are its own.
template <class Send, class Receive, class Near>
void for_each_pair(const StepPlan& plan,
                   const std::vector<Tie>& ties,
                   std::size_t first_place,
                   const Send& send,
                   const Receive& receive,
                   const Near& near) {
  const int rank = plan.group->rank();
  std::size_t place = first_place;
  for (const Tie& tie : ties) {
    for (std::size_t i = 1; i < tie.size(); ++i, ++place) {
      const int first_rank = rank_of(plan, tie.front());
      const int other_rank = rank_of(plan, tie[i]);
      if (first_rank == rank && other_rank == rank) {
        near(tie.front(), tie[i]);
      } else if (first_rank == rank) {
        send(tie.front(), tie[i], other_rank, place);
      } else if (other_rank == rank) {
        receive(tie.front(), tie[i], first_rank, place);
      }
    }
  }
}

}  // namespace

std::size_t n_tied_places(const std::vector<Tie>& ties) {
  std::size_t n_pairs = 0;
  for (const Tie& tie : ties) {
    n_pairs += tie.size() - 1;
  }
  return 2 * n_pairs;  // There and back.
}

std::string copy_first_values(const StepPlan& plan,
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
      messages.first_place,
      [&](const auto& first, const auto& /*other*/, int rank, std::size_t place) {
        transfers.send(rank, label_of(place, first), deliver(parameter_at(plan, first)));
      },
      [&](const auto& first, const auto& other, int rank, std::size_t place) {
        transfers.receive(rank, label_of(place, first));
        set(first, other, transfers.await(place).tensors.at(0));
      },
      [&](const auto& first, const auto& other) { set(first, other, parameter_at(plan, first)); });
  return problem;
}

void sum_tied_gradients(const StepPlan& plan,
                        const std::vector<Tie>& ties,
                        const TiedMessages& messages,
                        StageGradients& gradients) {
  const c10::NoGradGuard no_grad;
  Transfers& transfers = messages.transfers;
  const std::size_t back = messages.first_place + n_tied_places(ties) / 2;
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
      messages.first_place,
      [&](const auto& first, const auto& /*other*/, int rank, std::size_t place) {
        transfers.receive(rank, label_of(place, first));
        add(first, transfers.await(place).tensors.at(0));
      },
      [&](const auto& first, const auto& other, int rank, std::size_t place) {
        transfers.send(rank, label_of(place, first), deliver(gradients.of(other)));
      },
      [&](const auto& first, const auto& other) { add(first, gradients.of(other)); });
  for (const auto& [first, sum] : sums) {
    gradients.set_sum(first, sum);
  }
  for_each_pair(
      plan,
      ties,
      back,
      [&](const auto& first, const auto& /*other*/, int rank, std::size_t place) {
        transfers.send(rank, label_of(place, first), deliver(sums.at(first)));
      },
      [&](const auto& first, const auto& other, int rank, std::size_t place) {
        transfers.receive(rank, label_of(place, first));
        gradients.set_sum(other, transfers.await(place).tensors.at(0));
      },
      [&](const auto& first, const auto& other) { gradients.set_sum(other, sums.at(first)); });
}

}  // namespace unisono::parallel
