#include "hybrid_options.h"

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/pipeline/known_schedules.h"
#include "unisono/torch/nn/activation_checkpoint.h"
#include "unisono/torch/parallel/mesh/mesh.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"

#include "options.h"

namespace imdb {
namespace {

using unisono::nn::CheckpointMode;

const std::map<std::string, CheckpointMode>& checkpoint_modes() {
  static const std::map<std::string, CheckpointMode> modes{
      {"never", CheckpointMode::kNever},
      {"always", CheckpointMode::kAlways},
      {"except_last", CheckpointMode::kExceptLast}};
  return modes;
}

}  // namespace

void add_hybrid_options(CLI::App& app, HybridOptions& options) {
  const CLI::Range positive(1, std::numeric_limits<int>::max());
  add_options(app, options);
  app.add_option("--parts", options.parts, "Ranks that a replica of the model is divided among")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--schedule", options.schedule, "Of those of `unisono plan pipeline`")
      ->capture_default_str();
  app.add_option("--checkpoint", options.checkpoint, "Chunks that backward computes again")
      ->check(CLI::IsMember(checkpoint_modes()))
      ->capture_default_str();
  CLI::Option* const steps =
      app.add_option("--steps", options.steps, "Measure so many steps instead of a training")
          ->check(positive);
  app.add_option("--json", options.json, "Write what was measured into this file")->needs(steps);
  app.add_option("--layer-times",
                 options.layer_times,
                 "Measure the layers first, write that into this file, and say at the end how far "
                 "off a plan by it was");
  app.add_option("--svg", options.svg, "Write the picture of the last step into this file");
}

unisono::parallel::PipelineOptions pipeline_options(const HybridOptions& options) {
  check(options);
  (void)unisono::pipeline::find_schedule(options.schedule);
  if (options.batch_size % options.chunks != 0) {
    throw unisono::Error(unisono::ErrorCode::kInvalidArgument,
                         "--batch-size " + std::to_string(options.batch_size) +
                             " can't be divided into " + std::to_string(options.chunks) +
                             " --chunks of equal size");
  }
  if (!options.layer_times.empty() && options.checkpoint != "never") {
    throw unisono::Error(unisono::ErrorCode::kInvalidArgument,
                         "--layer-times is for steps that compute nothing again, and --checkpoint "
                         "is " +
                             options.checkpoint);
  }
  return {.schedule = options.schedule,
          .chunks = options.chunks,
          .checkpoint = checkpoint_modes().at(options.checkpoint),
          .seed = static_cast<std::uint64_t>(options.seed),
          .measures_memory = options.steps > 0 || !options.layer_times.empty()};
}

unisono::parallel::Mesh make_mesh(const std::shared_ptr<unisono::ProcessGroup>& group, int parts) {
  if (group->world_size() % parts != 0) {
    throw unisono::Error(unisono::ErrorCode::kInvalidArgument,
                         std::to_string(group->world_size()) +
                             " ranks can't be divided into replicas of --parts " +
                             std::to_string(parts));
  }
  return {group, {{"data", group->world_size() / parts}, {"pipe", parts}}};
}

}  // namespace imdb
