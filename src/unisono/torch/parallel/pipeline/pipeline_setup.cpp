#include "unisono/torch/parallel/pipeline/pipeline_setup.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <iterator>
#include <utility>

#include <c10/core/GradMode.h>

#include "unisono/base/error.h"
#include "unisono/torch/parallel/pipeline/transfers.h"
#include "unisono/torch/tensor/agreement.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::parallel {
namespace {

// Appends the tensors that are not in the list yet.
void append(const std::vector<NamedTensor>& from, std::vector<NamedTensor>& into) {
  for (const NamedTensor& named : from) {
    if (std::ranges::none_of(
            into, [&](const NamedTensor& other) { return other.tensor.is_same(named.tensor); })) {
      into.push_back(named);
    }
  }
}

// Throws unless this rank's stages are on one device.
void check_one_device(const std::map<int, StagePart>& parts) {
  const NamedTensor* first = nullptr;
  for (const auto& [stage, part] : parts) {
    for (const auto* const tensors : {&part.parameters(), &part.buffers()}) {
      for (const NamedTensor& named : *tensors) {
        first = first == nullptr ? &named : first;
        if (named.tensor.device() != first->tensor.device()) {
          throw Error(ErrorCode::kInvalidArgument,
                      "Pipeline: the rank's stages are on several devices ('" + first->name +
                          "' on " + first->tensor.device().str() + ", '" + named.name + "' on " +
                          named.tensor.device().str() +
                          "); a rank computes on one: move its stages there by "
                          "module.to(device)");
        }
      }
    }
  }
}

}  // namespace

std::vector<NamedTensor> PipelineState::named_parameters() const {
  std::vector<NamedTensor> all;
  for (const auto& [stage, part] : parts_) {
    std::vector<NamedTensor> of_part = part.parameters();
    for (NamedTensor& parameter : of_part) {
      parameter.aliases = names_in_whole(stage, parameter);
      std::erase(parameter.aliases, parameter.name);
    }
    append(of_part, all);
  }
  return all;
}

std::vector<NamedTensor> PipelineState::named_buffers() const {
  std::vector<NamedTensor> all;
  for (const auto& [stage, part] : parts_) {
    append(part.buffers(), all);
  }
  return all;
}

// Returns the possible names of a parameter in the state of a whole model. The names of its tie
// come first, in the same order on all ranks, so that ranks choose the same value if the state
// contains several.
std::vector<std::string> PipelineState::names_in_whole(int stage,
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

TensorState PipelineState::save() const {
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
  for (const auto& [stage, part] : parts_) {
    for (const NamedTensor& parameter : part.parameters()) {
      // Separately made stages may use the same name for a tied parameter. The first stage saves
      // the parameter.
      const bool is_first = is_first_of_tie({.stage = stage, .name = parameter.name});
      if (is_first || names_in_whole(stage, parameter).front() != parameter.name) {
        add(parameter);
      }
    }
    std::ranges::for_each(part.buffers(), add);
  }
  return state;
}

void PipelineState::load(const TensorState& state) const {
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
  for (const auto& [stage, part] : parts_) {
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

void PipelineState::train(bool on) const {
  for (const auto& [stage, part] : parts_) {
    part.train(on);
  }
}

void PipelineState::zero_grad(bool set_to_none) const {
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

bool PipelineState::is_first_of_tie(const PlacedParameter& place) const {
  return std::ranges::none_of(ties_, [&](const Tie& tie) {
    return std::find(tie.begin() + 1, tie.end(), place) != tie.end();
  });
}

std::vector<at::Tensor> PipelineState::gradients() const {
  std::vector<at::Tensor> gradients;
  for (const NamedTensor& parameter : named_parameters()) {
    if (parameter.tensor.grad().defined()) {
      gradients.push_back(parameter.tensor.grad());
    }
  }
  return gradients;
}

using pipeline::as_index;

namespace {

constexpr const char* kDiffer = "Pipeline: the ranks' pipelines differ";

Property property_of(const std::string& problem) {
  return {.what = "the problem", .value = problem.empty() ? "none" : problem};
}

std::vector<Property> properties_of(const PipelineLayout& plan,
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

// Returns the stages in the order in which the schedule completes their gradients.
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

void PipelineSetup::make_plan(std::shared_ptr<ProcessGroup> group, const MakeParts& make_parts) {
  if (group == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "Pipeline: the process group is null");
  }
  plan_.group = std::move(group);
  plan_.timeout = options_.timeout;
  std::string problem;
  std::exception_ptr error;
  try {
    plan_.schedule = schedule_of(options_, plan_.group->world_size());
    plan_.routes = routes_of(plan_.schedule.n_stages(), options_.skips);
    plan_.batch_inputs = batch_inputs_of(options_, plan_.schedule.n_stages());
    ModelParts parts = make_parts(plan_.schedule, plan_.group->rank());
    plan_.parts = std::move(parts.stages);
    check_one_device(plan_.parts);
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
    std::rethrow_exception(error);  // All ranks have the same error.
  }
}

std::vector<std::shared_ptr<ProcessGroup>> PipelineSetup::collect_groups() {
  std::vector<std::shared_ptr<ProcessGroup>> groups;
  const auto add = [&](const std::shared_ptr<ProcessGroup>& group) {
    if (group != nullptr && std::ranges::find(groups, group) == groups.end()) {
      groups.push_back(group);
    }
  };
  add(plan_.group);
  add(options_.data_group);
  plan_.is_by_arrival = options_.is_by_arrival;
  for (const auto& [stage, part] : plan_.parts) {
    std::ranges::for_each(part.groups(), add);
    plan_.is_by_arrival = plan_.is_by_arrival && part.groups().empty();
  }
  return groups;
}

Replicas PipelineSetup::join_replicas(const PipelineState& state,
                                      const std::map<int, std::vector<at::Tensor>>& trained) {
  Replicas replicas;
  std::string problem;
  try {
    replicas = try_to_join_replicas(state, trained);
  } catch (const std::exception& thrown) {
    problem = error_text(thrown);
  }
  share_problem(problem);
  return replicas;
}

// A rank that failed to make its stages reports the problem in this exchange, which all ranks make.
void PipelineSetup::check_alike(const std::string& problem) const {
  std::vector<Property> properties{property_of(problem)};
  if (problem.empty()) {
    std::ranges::move(properties_of(plan_, ties_, options_), std::back_inserter(properties));
  }
  check_agreement(*plan_.group, properties, kDiffer, options_.timeout);
}

// Turns a problem of any rank into an error on all ranks.
void PipelineSetup::share_problem(const std::string& problem) const {
  check_agreement(*plan_.group, {property_of(problem)}, kDiffer, options_.timeout);
  if (!problem.empty()) {
    throw Error(ErrorCode::kMismatch, problem);
  }
}

Replicas PipelineSetup::try_to_join_replicas(
    const PipelineState& state, const std::map<int, std::vector<at::Tensor>>& trained) {
  ProcessGroup& group = *options_.data_group;
  const std::vector<NamedTensor> parameters = state.named_parameters();
  const std::vector<NamedTensor> buffers = state.named_buffers();
  std::vector<Property> properties = properties_of(plan_, ties_, options_);
  properties.pop_back();  // The number of the replica.
  std::ranges::move(properties_of(parameters, "parameter"), std::back_inserter(properties));
  std::ranges::move(properties_of(buffers, "buffer"), std::back_inserter(properties));
  check_agreement(group, properties, "Pipeline: the replicas differ", options_.timeout);
  CoalescedBroadcast(parameters, "parameters").run(group, options_.timeout);
  Replicas replicas{.gradients = std::make_unique<ReplicaGradients>(
                        options_.data_group,
                        order_of_ends(plan_.schedule, plan_.group->rank()),
                        trained,
                        options_.timeout),
                    .buffers = std::make_unique<CoalescedBroadcast>(buffers, "buffers")};
  replicas.buffers->run(group, options_.timeout);
  return replicas;
}

void PipelineSetup::share_tied_values() {
  if (!ties_.empty()) {
    Transfers transfers(*plan_.group, n_tied_slots(ties_), options_.timeout, plan_.device());
    const std::string problem = copy_first_values(plan_, ties_, {.transfers = transfers});
    transfers.finish();
    share_problem(problem);
  }
}

}  // namespace unisono::parallel
