#include "unisono/torch/parallel/pipeline/pipeline_impl.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/pipeline/as_index.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/pipeline/timeline.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/torch/parallel/pipeline/allocation_meter.h"
#include "unisono/torch/parallel/pipeline/gather_timeline.h"
#include "unisono/torch/parallel/pipeline/step_run.h"
#include "unisono/torch/parallel/pipeline/tied.h"
#include "unisono/torch/parallel/tensor/gradient_norm.h"
#include "unisono/torch/parallel/tensor/placement.h"
#include "unisono/torch/tensor/random_state.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::parallel {

using pipeline::as_index;

namespace {

[[noreturn]] void reject(const std::string& problem) {
  throw Error(ErrorCode::kInvalidArgument, problem);
}

// As many chunks as there are, which differ in size by one at most; undefined where none is left.
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

// Each output over all chunks.
Tensors join(const std::vector<Delivery>& of_chunks) {
  std::vector<Tensors> of_outputs;
  for (const Delivery& of_chunk : of_chunks) {
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

// Whether the message is about the end of a rank, which it gives by its name.
bool says_is_lost(ErrorCode code, const std::string& what, const std::string& name) {
  const std::size_t begin = what.find(name);
  if (begin == std::string::npos) {
    return false;
  }
  const std::string rest = what.substr(begin + name.size());
  // A group that is closed since has any error's words. Ranks that only tell of one gave up.
  return code == ErrorCode::kPeerLost ? !rest.starts_with(" gave up: ")
                                      : code == ErrorCode::kClosed && rest.starts_with(" is gone");
}

// "stage 1", "stages 0 and 3".
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

// What the rank had that a group misses, which the group can't know: " (rank 1 had stage 1 of the
// pipeline)"; "" where the message names none, or has it already from another rank.
std::string Pipeline::Impl::describe_lost(ErrorCode code, const std::string& what) const {
  constexpr const char* kEnd = " of the pipeline)";
  if (what.find(kEnd) != std::string::npos) {
    return "";
  }
  for (const std::shared_ptr<ProcessGroup>& group : groups_) {
    for (int rank = 0; rank < group->world_size(); ++rank) {
      const rendezvous::Member& member = group->roster().members[as_index(rank)];
      if (rank != group->rank() && says_is_lost(code, what, rendezvous::describe(member))) {
        // In the other groups all have the same stages.
        const int in_pipeline = group == plan_.group ? rank : plan_.group->rank();
        return " (rank " + std::to_string(member.rank) + " had " +
               name_of_stages(plan_.schedule, in_pipeline) + kEnd;
      }
    }
  }
  return "";
}

// Whatever goes wrong on this rank, others wait for it, in all groups.
void Pipeline::Impl::fail(const char* call, ErrorCode code, std::string what) const {
  if (!what.starts_with("[rank ")) {
    what = "[rank " + std::to_string(plan_.group->rank()) + "/" +
           std::to_string(plan_.group->world_size()) + "] " + call + ": " + what;
    // What another rank said has its replica.
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
    const KeptRandomState kept;
    // Not in the first step, in whose backward ranks wait for each other: here all do it at once.
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
        .n_extra_places = n_tied_places(ties_),
        .before_backward = [&](int stage) { gradients_->before_backward(stage); },
        .after_backward = [&](int stage) { gradients_->after_backward(stage); },
        .on_gradients =
            [&](int stage) {
              if (replicas_) {
                replicas_->add(stage, gradients_->of_stage(stage));
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

double Pipeline::Impl::train(StepRun& run) {
  last_begin_ms_ = steady_now_ms();
  gradients_->begin();
  run.run();
  weight_sums_.memory.release();
  if (replicas_) {
    for (const auto& [stage, means] : replicas_->finish()) {
      gradients_->set(stage, means);
    }
  }
  if (!ties_.empty()) {
    sum_tied_gradients(plan_,
                       ties_,
                       {.transfers = run.transfers(), .first_place = run.extra_place()},
                       *gradients_);
    run.transfers().finish();
  }
  gradients_->end();
  if (shared_buffers_) {
    shared_buffers_->run(*options_.data_group, options_.timeout);
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
    const KeptRandomState kept;
    Problems problems;
    std::vector<Tensors> chunks = cut_inputs(inputs, /*is_training=*/false, problems);
    const StepRun::Options options{
        .inputs = std::move(chunks),
        .problems = std::move(problems),
        .random = random(),
        .is_checkpointed = [](int) { return false; },
        .keeps_outputs = true,
        .n_extra_places = 1,
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
  const MessageLabel label{.place = run.extra_place(), .text = "outputs of the batch"};
  if (!has_last_stage()) {
    transfers.receive(last_rank(), label);
    return transfers.await(label.place).tensors;
  }
  const Delivery delivery{.tensors = outputs,
                          .needs_gradient = std::vector<bool>(outputs.size(), false)};
  for (int rank = 0; rank < plan_.group->world_size(); ++rank) {
    if (rank != plan_.group->rank()) {
      transfers.send(rank, label, delivery);
    }
  }
  transfers.finish();
  return outputs;
}

double Pipeline::Impl::clip_grad_norm(double max_norm, const ClipOptions& options) {
  const double norm = guard("Pipeline::clip_grad_norm", [&] {
    check_clipping(max_norm, options);
    if (options.others != nullptr) {
      reject("ClipOptions::others is set, though the pipeline knows the ranks of its stages");
    }
    std::vector<PlacedTensor> counted;
    for (const auto& [stage, part] : plan_.parts) {
      for (const PlacedTensor& parameter : part.placed_parameters()) {
        if (is_first_of_tie({.stage = stage, .name = parameter.name})) {
          counted.push_back(parameter);
        }
      }
    }
    ClipOptions of_all = options;
    of_all.others = plan_.group;
    return norm_of_gradients(with_gradients(std::move(counted), "clip_grad_norm"), of_all);
  });
  // An error here is that of all ranks, which can go on.
  clip_to_norm(own_gradients(), norm, max_norm, options);
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
