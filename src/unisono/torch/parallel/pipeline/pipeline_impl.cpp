#include "unisono/torch/parallel/pipeline/pipeline_impl.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <span>
#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include "unisono/base/buffer.h"
#include "unisono/comm/options.h"
#include "unisono/torch/parallel/pipeline/gather_timeline.h"
#include "unisono/torch/parallel/tensor/divided_model.h"
#include "unisono/torch/parallel/tensor/gradient_norm.h"
#include "unisono/torch/tensor/random_state.h"
#include "unisono/torch/tensor/tensor.h"
#include "unisono/transport/rank_table.h"

namespace unisono::parallel {

using pipeline::as_index;

namespace {

[[noreturn]] void reject(const std::string& problem) {
  throw Error(ErrorCode::kInvalidArgument, problem);
}

// Cuts a tensor into chunks. The sizes of chunks differ by at most 1. Missing chunks are undefined.
Tensors cut(const at::Tensor& tensor, int n_chunks) {
  const std::int64_t size = tensor.size(0);
  Tensors chunks;
  std::int64_t begin = 0;
  for (std::int64_t chunk = 0; chunk < n_chunks; ++chunk) {
    const std::int64_t count = size / n_chunks + (chunk < size % n_chunks ? 1 : 0);
    chunks.push_back(count > 0 ? tensor.narrow(0, begin, count) : at::Tensor());
    begin += count;
  }
  return chunks;
}

// Joins each output over all chunks.
Tensors join(const std::vector<StageMessage>& of_chunks) {
  std::vector<Tensors> of_outputs;
  for (const StageMessage& of_chunk : of_chunks) {
    of_outputs.resize(std::max(of_outputs.size(), of_chunk.tensors.size()));
    for (std::size_t i = 0; i < of_chunk.tensors.size(); ++i) {
      of_outputs[i].push_back(of_chunk.tensors[i]);
    }
  }
  Tensors joined;
  for (const Tensors& of_output : of_outputs) {
    joined.push_back(of_output.front().dim() == 0 ? at::stack(of_output) : at::cat(of_output));
  }
  return joined;
}

// Returns true if the message reports the end of the rank with that name.
bool says_is_lost(ErrorCode code, const std::string& what, const std::string& name) {
  const std::size_t begin = what.find(name);
  if (begin == std::string::npos) {
    return false;
  }
  const std::string rest = what.substr(begin + name.size());
  // A closed group repeats any error. A rank that aborted reports the end of another rank.
  return code == ErrorCode::kPeerLost ? !rest.starts_with(" aborted: ")
                                      : code == ErrorCode::kClosed && rest.starts_with(" is gone");
}

// Returns a text such as "stage 1" or "stages 0 and 3".
std::string name_of_stages(const pipeline::Schedule& schedule, int rank) {
  std::vector<int> stages;
  for (int stage = 0; stage < schedule.n_stages(); ++stage) {
    if (schedule.rank_of_stage[as_index(stage)] == rank) {
      stages.push_back(stage);
    }
  }
  std::string text = stages.size() == 1 ? "stage " : "stages ";
  for (std::size_t i = 0; i < stages.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == stages.size() ? " and " : ", ") + std::to_string(stages[i]);
  }
  return text;
}

}  // namespace

Pipeline::Impl::Impl(std::shared_ptr<ProcessGroup> group,
                     const PipelineOptions& options,
                     const MakeParts& make_parts)
    : options_(options), state_(plan_.parts, ties_) {
  PipelineSetup setup(options_, plan_, ties_);
  setup.make_plan(std::move(group), make_parts);
  groups_ = setup.collect_groups();
  for (const auto& [stage, part] : plan_.parts) {
    stages_.push_back(stage);
  }
  gradients_ = std::make_unique<StageGradients>(plan_.parts, ties_);
  if (options_.data_group != nullptr) {
    replica_ = options_.data_group->rank();
    replicas_ = setup.join_replicas(state_, gradients_->parameters());
  }
  setup.share_tied_values();
}

template <class Body>
auto Pipeline::Impl::guard(const char* call, const Body& body) const {
  try {
    return body();
  } catch (const Error& error) {
    fail(call, error.code(), error.what());
  } catch (const c10::Error& error) {
    fail(call, ErrorCode::kInvalidArgument, error.what_without_backtrace());
  } catch (const std::exception& error) {
    fail(call, ErrorCode::kInvalidArgument, error.what());
  }
}

// Returns the stages of a lost rank, which are unknown to the group: " (rank 1 had stage 1 of the
// pipeline)". Returns "" for a message that names no lost rank or names the stages already.
std::string Pipeline::Impl::describe_lost(ErrorCode code, const std::string& what) const {
  constexpr const char* kEnd = " of the pipeline)";
  if (what.find(kEnd) != std::string::npos) {
    return "";
  }
  for (const std::shared_ptr<ProcessGroup>& group : groups_) {
    for (int rank = 0; rank < group->world_size(); ++rank) {
      const transport::Member& member = group->roster().members[as_index(rank)];
      if (rank != group->rank() && says_is_lost(code, what, transport::describe(member))) {
        // In any other group, all ranks have the same stages as this rank.
        const int in_pipeline = group == plan_.group ? rank : plan_.group->rank();
        return " (rank " + std::to_string(member.job_rank) + " had " +
               name_of_stages(plan_.schedule, in_pipeline) + kEnd;
      }
    }
  }
  return "";
}

// Aborts all groups, because other ranks wait for this rank in each of them.
void Pipeline::Impl::fail(const char* call, ErrorCode code, std::string what) const {
  if (!what.starts_with("[rank ")) {
    what = "[rank " + std::to_string(plan_.group->rank()) + "/" +
           std::to_string(plan_.group->world_size()) + "] " + call + ": " + what;
    // A message from another rank names that rank's replica already.
    if (options_.data_group != nullptr && what.find(" (in replica ") == std::string::npos) {
      what += " (in replica " + std::to_string(replica_) + ")";
    }
  }
  what += describe_lost(code, what);
  for (const std::shared_ptr<ProcessGroup>& group : groups_) {
    group->abort(what);
  }
  throw Error(code, what);
}

int Pipeline::Impl::last_rank() const {
  return plan_.schedule.rank_of_stage.back();
}

std::vector<Tensors> Pipeline::Impl::cut_inputs(const Tensors& inputs,
                                                bool is_training,
                                                Problems& problems) const {
  const int n_chunks = plan_.schedule.n_chunks;
  std::vector<Tensors> chunks(inputs.size());
  for (const int stage : stages_) {
    for (const int input : plan_.batch_inputs[as_index(stage)]) {
      const std::string name = "input " + std::to_string(input) + " of the batch";
      if (as_index(input) >= inputs.size() || !inputs[as_index(input)].defined()) {
        problems.emplace(stage,
                         name + " is missing, which stage " + std::to_string(stage) + " takes");
        continue;
      }
      const at::Tensor& tensor = inputs[as_index(input)];
      if (tensor.dim() == 0 ||
          (is_training && (tensor.size(0) % n_chunks != 0 || tensor.size(0) == 0))) {
        problems.emplace(stage,
                         name + ", " + describe(tensor) + ", for stage " + std::to_string(stage) +
                             ", can't be cut into " + std::to_string(n_chunks) +
                             " equal chunks along its first dimension");
        continue;
      }
      chunks[as_index(input)] = cut(tensor.detach(), n_chunks);
    }
  }
  return chunks;
}

std::vector<Tensors> Pipeline::Impl::cut_targets(const Tensors& targets, Problems& problems) const {
  const int n_chunks = plan_.schedule.n_chunks;
  std::vector<Tensors> of_chunks(as_index(n_chunks));
  if (!has_last_stage()) {
    return of_chunks;
  }
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const at::Tensor& target = targets[i];
    if (!target.defined() || target.dim() == 0 || target.size(0) % n_chunks != 0 ||
        target.size(0) == 0) {
      problems.emplace(plan_.last_stage(),
                       "target " + std::to_string(i) + ", " + describe(target) +
                           ", for the loss in stage " + std::to_string(plan_.last_stage()) +
                           ", can't be cut into " + std::to_string(n_chunks) +
                           " equal chunks along its first dimension");
      continue;
    }
    const Tensors chunks = cut(target, n_chunks);
    for (std::size_t chunk = 0; chunk < chunks.size(); ++chunk) {
      of_chunks[chunk].push_back(chunks[chunk]);
    }
  }
  return of_chunks;
}

std::function<ChunkRandom(int)> Pipeline::Impl::random() const {
  return [this](int chunk) {
    return ChunkRandom{
        .seed = options_.seed,
        .step = step_,
        .chunk = std::int64_t{replica_} * plan_.schedule.n_chunks + chunk,
    };
  };
}

at::Tensor Pipeline::Impl::train_step(const Tensors& inputs,
                                      const Tensors& targets,
                                      const LossOfMany& loss) {
  return guard("Pipeline", [&] {
    const c10::AutoGradMode with_gradients(true);
    const KeptRandomState kept(random_devices(inputs));
    // Called at the start of a step, when all ranks try the shapes at the same time. In the
    // backward pass of the first step, ranks would wait for each other's trials.
    weight_sums_.bits.try_new_shapes();
    std::optional<AllocationMeter> meter;
    if (options_.measures_memory) {
      meter.emplace();
    }
    Problems problems;
    std::vector<Tensors> inputs_of_chunks = cut_inputs(inputs, /*is_training=*/true, problems);
    const std::vector<Tensors> targets_of_chunks = cut_targets(targets, problems);
    const StepRun::Options options{
        .inputs = std::move(inputs_of_chunks),
        .problems = std::move(problems),
        .loss = [&](const Tensors& outputs,
                    int chunk) { return loss(outputs, targets_of_chunks[as_index(chunk)]); },
        .random = random(),
        .is_checkpointed =
            [&](int chunk) {
              return options_.checkpoint == nn::CheckpointMode::kAlways ||
                     (options_.checkpoint == nn::CheckpointMode::kExceptLast &&
                      chunk + 1 < plan_.schedule.n_chunks);
            },
        .keeps_outputs = options_.keeps_outputs,
        .weight_sums = &weight_sums_,
        .n_extra_slots = n_tied_slots(ties_),
        .before_backward = [&](int stage) { gradients_->before_backward(stage); },
        .after_backward = [&](int stage) { gradients_->after_backward(stage); },
        .on_gradients =
            [&](int stage) {
              if (replicas_.gradients) {
                replicas_.gradients->add(stage, gradients_->of_stage(stage));
              }
            },
    };
    StepRun run(plan_, options);
    const double mean = train(run);
    note_step(run, meter ? meter->peak() : 0);
    outputs_ = options_.keeps_outputs ? join(run.outputs()) : Tensors();
    ++step_;
    return at::tensor(mean, at::kDouble);
  });
}

RandomDevices Pipeline::Impl::random_devices(const Tensors& inputs) const {
  Tensors tensors = inputs;
  for (const auto& [stage, part] : plan_.parts) {
    for (const NamedTensor& parameter : part.parameters()) {
      tensors.push_back(parameter.tensor);
    }
  }
  return accelerators_of(tensors);
}

double Pipeline::Impl::train(StepRun& run) {
  last_begin_ms_ = steady_now_ms();
  gradients_->begin();
  run.run();
  weight_sums_.memory.release();
  if (replicas_.gradients) {
    for (const auto& [stage, means] : replicas_.gradients->finish()) {
      gradients_->set(stage, means);
    }
  }
  if (!ties_.empty()) {
    sum_tied_gradients(
        plan_, ties_, {.transfers = run.transfers(), .first_slot = run.extra_slot()}, *gradients_);
    run.transfers().finish();
  }
  gradients_->end();
  if (replicas_.buffers) {
    replicas_.buffers->run(*options_.data_group, options_.timeout);
  }
  return share_loss(run.loss());
}

double Pipeline::Impl::share_loss(double loss) {
  const Buffer buffer = as_buffer(std::span(&loss, 1));
  if (has_last_stage() && options_.data_group != nullptr) {
    options_.data_group->all_reduce(buffer,
                                    {.op = kAvg, .timeout = options_.timeout, .label = "loss"});
  }
  plan_.group->broadcast(buffer,
                         {.root = last_rank(), .timeout = options_.timeout, .label = "loss"});
  return loss;
}

void Pipeline::Impl::note_step(StepRun& run, std::int64_t peak_bytes) {
  last_step_ = {.spans = std::move(run.spans()),
                .step_ms = steady_now_ms() - last_begin_ms_,
                .peak_activation_bytes = peak_bytes};
  for (const pipeline::Span& span : last_step_.spans) {
    last_step_.busy_ms += span.end - span.start;
  }
}

Tensors Pipeline::Impl::forward(const Tensors& inputs) {
  return guard("Pipeline", [&] {
    const c10::NoGradGuard no_grad;
    const KeptRandomState kept(random_devices(inputs));
    Problems problems;
    std::vector<Tensors> chunks = cut_inputs(inputs, /*is_training=*/false, problems);
    const StepRun::Options options{
        .inputs = std::move(chunks),
        .problems = std::move(problems),
        .random = random(),
        .is_checkpointed = [](int) { return false; },
        .keeps_outputs = true,
        .n_extra_slots = 1,
    };
    StepRun run(plan_, options);
    run.run();
    return gather(run, has_last_stage() ? join(run.outputs()) : Tensors());
  });
}

Tensors Pipeline::Impl::gather(StepRun& run, Tensors outputs) {
  if (!options_.gathers_outputs) {
    return outputs;
  }
  Transfers& transfers = run.transfers();
  const MessageLabel label{.slot = run.extra_slot(), .text = "outputs of the batch"};
  if (!has_last_stage()) {
    transfers.receive(last_rank(), label);
    return transfers.await(label.slot).tensors;
  }
  const StageMessage message{.tensors = outputs,
                             .needs_gradient = std::vector<bool>(outputs.size(), false)};
  for (int rank = 0; rank < plan_.group->world_size(); ++rank) {
    if (rank != plan_.group->rank()) {
      transfers.send(rank, label, message);
    }
  }
  transfers.finish();
  return outputs;
}

double Pipeline::Impl::clip_grad_norm(double max_norm, const ClipOptions& options) {
  const double norm = guard("Pipeline::clip_grad_norm", [&] {
    check_clipping(max_norm, options);
    if (options.others != nullptr) {
      reject("ClipOptions::others is set, though the pipeline has the ranks of its stages");
    }
    std::vector<PlacedTensor> counted;
    for (const auto& [stage, part] : plan_.parts) {
      for (const PlacedTensor& parameter : part.placed_parameters()) {
        if (state_.is_first_of_tie({.stage = stage, .name = parameter.name})) {
          counted.push_back(parameter);
        }
      }
    }
    ClipOptions of_all = options;
    of_all.others = plan_.group;
    return norm_of_gradients(with_gradients(std::move(counted), "clip_grad_norm"), of_all);
  });
  // This error is thrown on all ranks. The group stays usable.
  clip_to_norm(state_.gradients(), norm, max_norm, options);
  return norm;
}

pipeline::Timeline Pipeline::Impl::timeline() {
  return guard("Pipeline::timeline", [&] {
    return gather_timeline(*plan_.group,
                           plan_.schedule,
                           {.spans = last_step_.spans, .begin_ms = last_begin_ms_},
                           options_.timeout);
  });
}

}  // namespace unisono::parallel
