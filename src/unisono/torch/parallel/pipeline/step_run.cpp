#include "unisono/torch/parallel/pipeline/step_run.h"

#include <algorithm>
#include <exception>

#include <c10/util/Exception.h>

#include "unisono/base/error.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::parallel {

using pipeline::Action;
using pipeline::ActionKind;
using pipeline::as_index;

namespace {

// The number of next actions with receives that are posted ahead. The timeout of a receive starts
// when the receive is posted, so receives of much later actions could time out although no rank is
// late.
constexpr std::size_t kAhead = 8;

std::string name_of(const Route& route, bool is_gradient, int chunk) {
  return is_gradient ? "gradients of chunk " + std::to_string(chunk) + " from stage " +
                           std::to_string(route.to) + " to stage " + std::to_string(route.from)
                     : "outputs of chunk " + std::to_string(chunk) + " from stage " +
                           std::to_string(route.from) + " to stage " + std::to_string(route.to);
}

// A stage may work in place on its inputs, so memory must not be shared.
bool shares_memory(const at::Tensor& tensor, const Tensors& others) {
  return std::ranges::any_of(others, [&](const at::Tensor& other) {
    return tensor.has_storage() && other.has_storage() && tensor.is_alias_of(other);
  });
}

}  // namespace

StepRun::StepRun(const PipelineLayout& plan, const Options& options)
    : plan_(plan),
      options_(options),
      transfers_(*plan.group,
                 2 * plan.routes.size() * as_index(plan.schedule.n_chunks) + options.n_extra_slots,
                 plan.timeout,
                 plan.device()),
      progress_(options.loss ? pipeline::start(plan.schedule, plan.group->rank())
                             : pipeline::start_forwards(plan.schedule, plan.group->rank())),
      is_expected_(extra_slot(), false),
      losses_(as_index(plan.schedule.n_chunks)),
      outputs_(as_index(plan.schedule.n_chunks)) {
  for (int stage = 0; stage < plan.schedule.n_stages(); ++stage) {
    into_.push_back(routes_into(stage, plan.routes));
    out_of_.push_back(routes_out_of(stage, plan.routes));
  }
}

std::size_t StepRun::extra_slot() const {
  return 2 * plan_.routes.size() * as_index(plan_.schedule.n_chunks);
}

std::size_t StepRun::slot_of(const Expected& expected) const {
  return (2 * as_index(expected.route) + (expected.is_gradient ? 1 : 0)) *
             as_index(plan_.schedule.n_chunks) +
         as_index(expected.chunk);
}

std::vector<StepRun::Expected> StepRun::expected_of(const Action& action) const {
  std::vector<Expected> all_expected;
  if (action.kind == ActionKind::kBackwardWeight) {
    return all_expected;
  }
  const bool is_gradient = action.kind != ActionKind::kForward;
  for (const int route : (is_gradient ? out_of_ : into_)[as_index(action.stage)]) {
    all_expected.push_back({.route = route, .is_gradient = is_gradient, .chunk = action.chunk});
  }
  return all_expected;
}

int StepRun::rank_of(int stage) const {
  return plan_.schedule.rank_of_stage[as_index(stage)];
}

// Returns the index of the next action to run. If no action can run, fills `missing` with the slots
// of messages that would enable an action.
std::optional<std::size_t> StepRun::find_next(std::vector<std::size_t>& missing) {
  const auto has_arrived = [&](const Action& action) {
    bool has_all = true;
    for (const Expected& expected : expected_of(action)) {
      const std::size_t slot = slot_of(expected);
      if (!transfers_.mailbox().has(slot)) {
        missing.push_back(slot);
        has_all = false;
      }
    }
    return has_all;
  };
  if (plan_.is_by_arrival) {
    return next_action(progress_, has_arrived);
  }
  return has_arrived(progress_.remaining.front()) ? std::optional<std::size_t>(0) : std::nullopt;
}

void StepRun::expect_next() {
  const std::size_t n = std::min(kAhead, progress_.remaining.size());
  for (std::size_t i = 0; i < n; ++i) {
    for (const Expected& expected : expected_of(progress_.remaining[i])) {
      const Route& route = plan_.routes[as_index(expected.route)];
      const int from = rank_of(expected.is_gradient ? route.to : route.from);
      const std::size_t slot = slot_of(expected);
      if (from != plan_.group->rank() && !is_expected_[slot]) {
        is_expected_[slot] = true;
        transfers_.receive(
            from, {.slot = slot, .text = name_of(route, expected.is_gradient, expected.chunk)});
      }
    }
  }
}

void StepRun::run() {
  expect_next();
  while (!progress_.remaining.empty()) {
    transfers_.mailbox().throw_if_failed();
    std::vector<std::size_t> missing;
    const std::optional<std::size_t> next = find_next(missing);
    if (!next) {
      transfers_.mailbox().wait(missing);
      continue;
    }
    const Action action = take(progress_, *next);
    expect_next();
    perform(action);
    transfers_.release_sent();
  }
  transfers_.finish();
}

void StepRun::perform(const Action& action) {
  const auto now = [this] {
    return std::chrono::duration<double, std::milli>(Clock::now() - begin_).count();
  };
  const double start = now();
  if (action.kind == ActionKind::kForward) {
    forward(action);
  } else {
    backward(action);
  }
  spans_.push_back({.action = action, .start = start, .end = now()});
}

// Adds the name of the action to errors of the stage.
template <class Work>
auto StepRun::compute(const Action& action, const Work& work) {
  const auto here = [&](const char* what) { return describe(action) + ": " + what; };
  try {
    return work();
  } catch (const Error& error) {
    throw Error(error.code(), here(error.what()));
  } catch (const c10::Error& error) {
    throw Error(ErrorCode::kInvalidArgument, here(error.what_without_backtrace()));
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kInvalidArgument, here(error.what()));
  }
}

std::optional<StageMessage> StepRun::take_inputs(const Action& action, Pass& pass) {
  StageMessage inputs;
  for (const Expected& expected : expected_of(action)) {
    StageMessage message = transfers_.mailbox().take(slot_of(expected));
    inputs.has_chunk = inputs.has_chunk && message.has_chunk;
    pass.n_inputs.push_back(message.tensors.size());
    for (std::size_t i = 0; i < message.tensors.size(); ++i) {
      inputs.tensors.push_back(std::move(message.tensors[i]));
      inputs.needs_gradient.push_back(message.needs_gradient[i] && options_.loss != nullptr);
    }
  }
  if (const auto found = options_.problems.find(action.stage); found != options_.problems.end()) {
    throw Error(ErrorCode::kInvalidArgument, found->second);
  }
  for (const int input : plan_.batch_inputs[as_index(action.stage)]) {
    const at::Tensor& chunk = options_.inputs[as_index(input)][as_index(action.chunk)];
    inputs.has_chunk = inputs.has_chunk && chunk.defined();
    inputs.tensors.push_back(chunk);
    inputs.needs_gradient.push_back(false);
  }
  return inputs.has_chunk ? std::optional(std::move(inputs)) : std::nullopt;
}

void StepRun::forward(const Action& action) {
  Pass& pass = passes_[{action.stage, action.chunk}];
  std::optional<StageMessage> inputs = take_inputs(action, pass);
  const bool is_last = action.stage == plan_.last_stage();
  StageMessage outputs{.has_chunk = false};
  if (inputs) {
    StagePass::Options options{.random = options_.random(action.chunk),
                               .is_checkpointed = options_.is_checkpointed(action.chunk)};
    if (is_last && options_.loss) {
      options.loss = [this, chunk = action.chunk](const Tensors& of_chunk) {
        return options_.loss(of_chunk, chunk);
      };
    }
    pass.pass = compute(action, [&] {
      return std::make_unique<StagePass>(
          plan_.parts.at(action.stage), std::move(*inputs), std::move(options));
    });
    outputs = pass.pass->take_outputs();
    pass.n_outputs = static_cast<int>(outputs.tensors.size());
  }
  if (!is_last) {
    send_outputs(action, outputs);
  } else {
    losses_[as_index(action.chunk)] = pass.pass ? pass.pass->loss() : at::Tensor();
    if (options_.keeps_outputs) {
      outputs_[as_index(action.chunk)] = std::move(outputs);
    }
  }
  if (!options_.loss) {
    passes_.erase({action.stage, action.chunk});
  }
}

// Messages to other ranks are started first and are sent without a copy; stages of this rank
// therefore receive copies of shared tensors.
void StepRun::send_outputs(const Action& action, const StageMessage& outputs) {
  const int n_outputs = static_cast<int>(outputs.tensors.size());
  const auto is_near = [this](int route) {
    return rank_of(plan_.routes[as_index(route)].to) == plan_.group->rank();
  };
  std::vector<int> routes = out_of_[as_index(action.stage)];
  std::ranges::stable_partition(routes, [&](int route) { return !is_near(route); });
  Tensors given;
  for (const int index : routes) {
    const Route& route = plan_.routes[as_index(index)];
    StageMessage message{.has_chunk = outputs.has_chunk};
    if (outputs.has_chunk) {
      const std::vector<int> on_route =
          compute(action, [&] { return outputs_on(route, plan_.routes, n_outputs); });
      for (const int output : on_route) {
        const at::Tensor& tensor = outputs.tensors[as_index(output)];
        message.tensors.push_back(is_near(index) && shares_memory(tensor, given) ? tensor.clone()
                                                                                 : tensor);
        given.push_back(tensor);
        message.needs_gradient.push_back(outputs.needs_gradient[as_index(output)]);
      }
    }
    hand_over({.route = index, .is_gradient = false, .chunk = action.chunk},
              route.to,
              std::move(message));
  }
}

void StepRun::hand_over(const Expected& expected, int to_stage, StageMessage message) {
  const std::size_t slot = slot_of(expected);
  if (rank_of(to_stage) == plan_.group->rank()) {
    transfers_.mailbox().put(slot, std::move(message));
    return;
  }
  const Route& route = plan_.routes[as_index(expected.route)];
  transfers_.send(rank_of(to_stage),
                  {.slot = slot, .text = name_of(route, expected.is_gradient, expected.chunk)},
                  message);
}

Tensors StepRun::take_gradients(const Action& action) {
  const Pass& pass = passes_.at({action.stage, action.chunk});
  if (action.stage == plan_.last_stage()) {
    return {pass.pass->gradient_of_loss(1.0 / plan_.schedule.n_chunks)};
  }
  Tensors gradients(as_index(pass.n_outputs));
  for (const Expected& expected : expected_of(action)) {
    StageMessage message = transfers_.mailbox().take(slot_of(expected));
    const Route& route = plan_.routes[as_index(expected.route)];
    const std::vector<int> on_route = outputs_on(route, plan_.routes, pass.n_outputs);
    if (message.tensors.size() != on_route.size()) {
      throw Error(ErrorCode::kMismatch,
                  describe(action) + ": stage " + std::to_string(route.to) + " has sent " +
                      std::to_string(message.tensors.size()) + " gradients for " +
                      std::to_string(on_route.size()) + " outputs");
    }
    for (std::size_t i = 0; i < on_route.size(); ++i) {
      gradients[as_index(on_route[i])] = std::move(message.tensors[i]);
    }
  }
  return gradients;
}

void StepRun::backward(const Action& action) {
  StagePass& pass = *passes_.at({action.stage, action.chunk}).pass;
  const bool is_end = action.kind != ActionKind::kBackwardInput;
  if (action.kind == ActionKind::kBackwardWeight) {
    options_.before_backward(action.stage);
    compute(action, [&] { pass.backward_weights(*options_.weight_sums); });
    options_.after_backward(action.stage);
  } else {
    const Tensors gradients = take_gradients(action);
    if (is_end) {
      options_.before_backward(action.stage);
      compute(action, [&] { pass.backward(gradients, *options_.weight_sums); });
      options_.after_backward(action.stage);
    } else {
      compute(action, [&] { pass.backward_inputs(gradients); });
    }
    send_gradients(action, pass.input_gradients());
  }
  if (is_end) {
    passes_.erase({action.stage, action.chunk});
    if (++n_backward_[action.stage] == plan_.schedule.n_chunks) {
      options_.on_gradients(action.stage);
    }
  }
}

// The gradients follow the order of the stage's inputs: routes first, then inputs of the batch.
void StepRun::send_gradients(const Action& action, const Tensors& gradients) {
  std::size_t n_sent = 0;
  const std::vector<std::size_t>& counts = passes_.at({action.stage, action.chunk}).n_inputs;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const int route = into_[as_index(action.stage)][i];
    StageMessage message;
    for (std::size_t n = 0; n < counts[i]; ++n) {
      message.tensors.push_back(gradients[n_sent++]);
      message.needs_gradient.push_back(false);
    }
    hand_over({.route = route, .is_gradient = true, .chunk = action.chunk},
              plan_.routes[as_index(route)].from,
              std::move(message));
  }
}

double StepRun::loss() const {
  double sum = 0;
  for (const at::Tensor& loss : losses_) {
    sum += loss.defined() ? loss.item<double>() : 0;
  }
  return sum / static_cast<double>(losses_.size());
}

}  // namespace unisono::parallel
