#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>

#include "unisono/base/error.h"
#include "unisono/base/file.h"
#include "unisono/cli/commands.h"
#include "unisono/cli/parse.h"
#include "unisono/cli/plans.h"
#include "unisono/pipeline/known_schedules.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/pipeline/timeline.h"

namespace unisono::cli {
namespace {

constexpr const char* kAllSchedules = "all";
constexpr double kMaxMs = 1e9;

struct PipelineArguments {
  PipelineWish wish;
  double forward_ms = 1;
  double backward_ms = 2;
  std::optional<double> weight_ms;
  std::string schedule = "1f1b";
  std::string table;
  std::string layer_times;
  std::string balance = "time";
  std::string svg;
  std::string csv;
};

void add_slurm_options(CLI::App& slurm, SlurmWish& wish) {
  slurm.prefix_command();
  slurm.add_option("--nodes", wish.n_nodes, "Number of nodes (default 1)");
  slurm.add_option("--gpus-per-node", wish.gpus_per_node, "GPUs of each node (default 0)");
  slurm.add_option(
      "--parts", wish.n_parts, "GPUs of each rank, one for each part of its model (default 1)");
  slurm.add_option("--tasks-per-node",
                   wish.tasks_per_node,
                   "Ranks of each node, where it has no GPUs (default 1)");
  slurm.add_option("--cpus-per-node", wish.cpus_per_node, "Cores to divide among a node's ranks");
  add_examples(
      slurm,
      {"unisono plan slurm --nodes 3 --gpus-per-node 4 --parts 2 ./train > job.sh; sbatch job.sh",
       "unisono plan slurm --nodes 2 --tasks-per-node 8 --cpus-per-node 64 ./train"});
}

std::string schedule_names() {
  std::string names;
  for (const pipeline::KnownSchedule& known : pipeline::known_schedules()) {
    names += fmt::format("{}|", known.name);
  }
  return names + kAllSchedules;
}

void add_pipeline_options(CLI::App& app, PipelineArguments& arguments) {
  PipelineWish& wish = arguments.wish;
  app.add_option("--ranks", wish.n_ranks, "Ranks that the model is divided among (default 4)")
      ->check(CLI::Range(1, 256));
  app.add_option("--chunks", wish.n_chunks, "Chunks that a rank's batch is cut into (default 8)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--schedule",
                 arguments.schedule,
                 "Order of the computations; all: compare all schedules (default 1f1b)")
      ->type_name(schedule_names());
  app.add_option("--stages-per-rank",
                 wish.stages_per_rank,
                 "Parts of the model on each rank, for interleaved_1f1b (default 2)")
      ->check(CLI::Range(1, 64));
  CLI::Option* const forward = app.add_option("--forward-ms",
                                              arguments.forward_ms,
                                              "Forward time of a chunk on each rank (default 1)")
                                   ->check(CLI::Range(0.0, kMaxMs));
  CLI::Option* const backward =
      app.add_option("--backward-ms",
                     arguments.backward_ms,
                     "Backward time of a chunk, for gradients of inputs and weights (default 2)")
          ->check(CLI::Range(0.0, kMaxMs));
  CLI::Option* const weight =
      app.add_option("--weight-ms",
                     arguments.weight_ms,
                     "Part of it for gradients of weights (default half of --backward-ms)")
          ->check(CLI::Range(0.0, kMaxMs));
  app.add_option(
         "--transfer-ms", wish.transfer_ms, "Time of a message from a rank to another (default 0)")
      ->check(CLI::Range(0.0, kMaxMs));
  app.add_option("--layer-times",
                 arguments.layer_times,
                 "CSV file with a line for each layer: forward_ms, backward_ms and, if known, "
                 "weight_ms and activation_mib")
      ->type_name("FILE")
      ->excludes(forward)
      ->excludes(backward)
      ->excludes(weight);
  app.add_option(
         "--balance", arguments.balance, "Criterion by which layers are divided (default time)")
      ->type_name("time|memory|count");
  app.add_flag("--by-arrival",
               wish.is_by_arrival,
               "Ranks run an action whose inputs have arrived, as far as the schedule allows, not "
               "the next one in it");
  app.add_option("--table", arguments.table, "A schedule from a CSV file in PyTorch's form")
      ->type_name("FILE");
  app.add_option("--svg", arguments.svg, "Write the picture to this file")->type_name("FILE");
  app.add_option("--csv", arguments.csv, "Write the schedule to this file, in PyTorch's form")
      ->type_name("FILE");
  add_examples(app,
               {"unisono plan pipeline --ranks 4 --chunks 8 --schedule all",
                "unisono plan pipeline --schedule zb_h1 --svg step.svg",
                "unisono plan pipeline --schedule v_half --layer-times layers.csv"});
}

void write_file(const std::string& path, const std::string& text) {
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

Balance balance_of(const std::string& name) {
  if (name == "time") {
    return Balance::kTime;
  }
  if (name == "memory") {
    return Balance::kMemory;
  }
  if (name == "count") {
    return Balance::kCount;
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("plan: --balance {}: there are time, memory and count", name));
}

void complete_wish(PipelineArguments& arguments) {
  const double weight_ms = arguments.weight_ms.value_or(arguments.backward_ms / 2);
  if (weight_ms > arguments.backward_ms) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("plan: --weight-ms {} is a part of --backward-ms, which is {}",
                            weight_ms,
                            arguments.backward_ms));
  }
  arguments.wish.rank_times = {.forward = arguments.forward_ms,
                               .backward_input = arguments.backward_ms - weight_ms,
                               .backward_weight = weight_ms};
  arguments.wish.balance = balance_of(arguments.balance);
  if (!arguments.layer_times.empty()) {
    arguments.wish.layers = read_layer_costs(arguments.layer_times);
  }
}

int compare_schedules(const PipelineArguments& arguments) {
  if (!arguments.svg.empty() || !arguments.csv.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "plan: --svg and --csv are of one schedule, and --schedule all is of all of them");
  }
  std::vector<PipelinePlan> plans;
  for (const pipeline::KnownSchedule& known : pipeline::known_schedules()) {
    plans.push_back(make_pipeline_plan(arguments.wish, known));
  }
  fmt::print(
      "{} ranks, {} chunks\n{}", arguments.wish.n_ranks, arguments.wish.n_chunks, compare(plans));
  return 0;
}

int plan_pipeline(PipelineArguments arguments) {
  complete_wish(arguments);
  if (arguments.table.empty() && arguments.schedule == kAllSchedules) {
    return compare_schedules(arguments);
  }
  const PipelinePlan plan =
      arguments.table.empty()
          ? make_pipeline_plan(arguments.wish, pipeline::find_schedule(arguments.schedule))
          : make_pipeline_plan(
                arguments.wish, pipeline::read_csv(arguments.table), arguments.table);
  if (!arguments.svg.empty()) {
    write_file(arguments.svg, pipeline::render_svg(plan.timeline, "ms"));
  }
  if (!arguments.csv.empty()) {
    write_file(arguments.csv, pipeline::to_csv(plan.schedule));
  }
  fmt::print("{}", describe(plan));
  return 0;
}

}  // namespace

int plan_command(const CommandLine& line) {
  CLI::App app("Plans a training before it runs", "unisono plan");
  app.require_subcommand(1);
  CLI::App* const slurm = app.add_subcommand(
      "slurm", "Print a batch script for sbatch: nodes that are all alike, one task per rank");
  CLI::App* const pipeline = app.add_subcommand(
      "pipeline", "Draw a step of a pipeline, and predict its time, bubble and memory");
  SlurmWish wish;
  add_slurm_options(*slurm, wish);
  PipelineArguments arguments;
  add_pipeline_options(*pipeline, arguments);
  if (const std::optional<int> exit_code = parse(app, line)) {
    return *exit_code;
  }
  if (pipeline->parsed()) {
    return plan_pipeline(std::move(arguments));
  }
  const std::vector<std::string> program =
      slurm->remaining().empty() ? std::vector<std::string>{"./train"} : slurm->remaining();
  fmt::print("{}", batch_script(make_slurm_plan(wish), fmt::format("{}", fmt::join(program, " "))));
  return 0;
}

}  // namespace unisono::cli
