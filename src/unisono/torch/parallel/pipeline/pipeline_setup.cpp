// How a pipeline comes about: what the ranks have to have alike, and what they tell each other.

#include <algorithm>
#include <cstddef>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/error_text.h"
#include "unisono/pipeline/as_index.h"
#include "unisono/pipeline/csv.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/torch/parallel/pipeline/pipeline_impl.h"
#include "unisono/torch/parallel/pipeline/routes.h"
#include "unisono/torch/parallel/pipeline/tied.h"
#include "unisono/torch/parallel/pipeline/transfers.h"
#include "unisono/torch/tensor/agreement.h"
#include "unisono/torch/tensor/coalesced_broadcast.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::parallel {

using pipeline::as_index;

namespace {

constexpr const char* kDiffer = "Pipeline: the ranks' pipelines differ";

Property property_of(const std::string& problem) {
  return {.what = "the problem", .value = problem.empty() ? "none" : problem};
}

std::vector<Property> properties_of(const StepPlan& plan,
                                    const std::vector<Tie>& ties,
                                    const PipelineOptions& options) {
  std::string ties_text;
  for (const Tie& tie : ties) {
    for (const PlacedParameter& place : tie) {
      ties_text += place.name + " of stage " + std::to_string(place.stage) + ", ";
    }
  }
  std::string routes;
  for (const Route& route : plan.routes) {
    routes += std::to_string(route.from) + " to " + std::to_string(route.to) +
              (route.output ? " (output " + std::to_string(*route.output) + "), " : ", ");
  }
  std::string inputs;
  for (std::size_t stage = 0; stage < plan.batch_inputs.size(); ++stage) {
    for (const int input : plan.batch_inputs[stage]) {
      inputs += (inputs.empty() ? "input " : ", input ") + std::to_string(input) + " to stage " +
                std::to_string(stage);
    }
  }
  const bool has_replicas = options.data_group != nullptr;
  return {
      {.what = "the number of chunks", .value = std::to_string(plan.schedule.n_chunks)},
      {.what = "the number of stages", .value = std::to_string(plan.schedule.n_stages())},
      {.what = "option schedule", .value = options.table ? "a table" : options.schedule},
      {.what = "the schedule", .value = pipeline::to_csv(plan.schedule)},
      {.what = "what goes from stage to stage", .value = routes},
      {.what = "what stages get of the batch", .value = inputs},
      {.what = "tied parameters", .value = ties_text},
      {.what = "option checkpoint", .value = std::to_string(static_cast<int>(options.checkpoint))},
      {.what = "option seed", .value = std::to_string(options.seed)},
      {.what = "option gathers_outputs", .value = options.gathers_outputs ? "true" : "false"},
      {.what = "the number of replicas",
       .value = std::to_string(has_replicas ? options.data_group->world_size() : 1)},
      {.what = "the replica",
       .value = std::to_string(has_replicas ? options.data_group->rank() : 0)},
  };
}

std::vector<Property> properties_of(const std::vector<NamedTensor>& tensors,
                                    const std::string& what) {
  std::vector<Property> properties;
  for (const NamedTensor& named : tensors) {
    properties.push_back({.what = what + " '" + named.name + "'",
                          .value = describe(named.tensor) +
                                   (named.tensor.requires_grad() ? "" : " without gradient")});
  }
  return properties;
}

// The stages in the order in which they come to their gradients.
std::vector<int> order_of_ends(const pipeline::Schedule& schedule, int rank) {
  std::vector<int> order;
  for (const pipeline::Action& action : schedule.orders[as_index(rank)]) {
    if (action.kind == pipeline::ActionKind::kBackward ||
        action.kind == pipeline::ActionKind::kBackwardWeight) {
      std::erase(order, action.stage);
      order.push_back(action.stage);
    }
  }
  return order;
}

}  // namespace

void check_number_of_stages(std::size_t n_stages, const pipeline::Schedule& schedule) {
  if (n_stages != as_index(schedule.n_stages())) {
    throw Error(ErrorCode::kInvalidArgument,
                "Pipeline: there are " + std::to_string(n_stages) +
                    " stages, but the schedule has " + std::to_string(schedule.n_stages()));
  }
}

Pipeline::Impl::Impl(std::shared_ptr<ProcessGroup> group,
                     const PipelineOptions& options,
                     const MakeParts& make_parts)
    : options_(options) {
  if (group == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "Pipeline: the process group is null");
  }
  plan_.group = std::move(group);
  plan_.timeout = options.timeout;
  std::string problem;
  std::exception_ptr error;
  try {
    plan_.schedule = schedule_of(options_, plan_.group->world_size());
    plan_.routes = routes_of(plan_.schedule.n_stages(), options_.skips);
    plan_.batch_inputs = batch_inputs_of(options_, plan_.schedule.n_stages());
    ModelParts parts = make_parts(plan_.schedule, plan_.group->rank());
    plan_.parts = std::move(parts.stages);
    ties_ = std::move(parts.ties);
  } catch (const std::exception& thrown) {
    error = std::current_exception();
    problem = error_text(thrown);
  }
  try {
    check_alike(problem);
  } catch (const std::exception& thrown) {
    if (options_.data_group != nullptr) {
      options_.data_group->abort(error_text(thrown));  // Replicas wait for this rank's parameters.
    }
    throw;
  }
  if (error != nullptr) {
    std::rethrow_exception(error);  // All ranks have the same one.
  }
  collect_groups();
  gradients_ = std::make_unique<StageGradients>(plan_.parts, ties_);
  if (options_.data_group != nullptr) {
    problem.clear();
    try {
      set_up_replicas();
    } catch (const std::exception& thrown) {
      problem = error_text(thrown);
    }
    share_problem(problem);
  }
  share_tied_values();
}

void Pipeline::Impl::collect_groups() {
  const auto add = [this](const std::shared_ptr<ProcessGroup>& group) {
    if (group != nullptr && std::ranges::find(groups_, group) == groups_.end()) {
      groups_.push_back(group);
    }
  };
  add(plan_.group);
  add(options_.data_group);
  plan_.is_by_arrival = options_.is_by_arrival;
  for (const auto& [stage, part] : plan_.parts) {
    stages_.push_back(stage);
    std::ranges::for_each(part.groups(), add);
    plan_.is_by_arrival = plan_.is_by_arrival && part.groups().empty();
  }
}

// A rank that could not make its part says so here, where others wait for it.
void Pipeline::Impl::check_alike(const std::string& problem) const {
  std::vector<Property> properties{property_of(problem)};
  if (problem.empty()) {
    std::ranges::move(properties_of(plan_, ties_, options_), std::back_inserter(properties));
  }
  check_agreement(*plan_.group, properties, kDiffer, options_.timeout);
}

// What one rank has found is an error of all.
void Pipeline::Impl::share_problem(const std::string& problem) const {
  check_agreement(*plan_.group, {property_of(problem)}, kDiffer, options_.timeout);
  if (!problem.empty()) {
    throw Error(ErrorCode::kMismatch, problem);
  }
}

void Pipeline::Impl::set_up_replicas() {
  ProcessGroup& group = *options_.data_group;
  replica_ = group.rank();
  const std::vector<NamedTensor> parameters = named_parameters();
  const std::vector<NamedTensor> buffers = named_buffers();
  std::vector<Property> properties = properties_of(plan_, ties_, options_);
  properties.pop_back();  // The replica.
  std::ranges::move(properties_of(parameters, "parameter"), std::back_inserter(properties));
  std::ranges::move(properties_of(buffers, "buffer"), std::back_inserter(properties));
  check_agreement(group, properties, "Pipeline: the replicas differ", options_.timeout);
  CoalescedBroadcast(parameters, "parameters").run(group, options_.timeout);
  shared_buffers_ = std::make_unique<CoalescedBroadcast>(buffers, "buffers");
  shared_buffers_->run(group, options_.timeout);
  replicas_ = std::make_unique<ReplicaGradients>(options_.data_group,
                                                 order_of_ends(plan_.schedule, plan_.group->rank()),
                                                 gradients_->parameters(),
                                                 options_.timeout);
}

void Pipeline::Impl::share_tied_values() {
  if (!ties_.empty()) {
    Transfers transfers(*plan_.group, n_tied_places(ties_), options_.timeout);
    const std::string problem = copy_first_values(plan_, ties_, {.transfers = transfers});
    transfers.finish();
    share_problem(problem);
  }
}

}  // namespace unisono::parallel
