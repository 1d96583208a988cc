#include "unisono/cli/plans.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <system_error>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/text.h"

namespace unisono::cli {

SlurmPlan make_slurm_plan(const SlurmWish& wish) {
  const bool has_gpus = wish.gpus_per_node > 0;
  if (wish.n_nodes < 1 || wish.gpus_per_node < 0 || wish.n_parts < 1 || wish.tasks_per_node < 1 ||
      wish.cpus_per_node < 0) {
    throw Error(ErrorCode::kInvalidArgument, "plan: nodes, parts and tasks are at least 1");
  }
  if (has_gpus && wish.gpus_per_node % wish.n_parts != 0) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("plan: a node's {} GPUs can't be divided among ranks that take {} each, one "
                    "for each part of the model",
                    wish.gpus_per_node,
                    wish.n_parts));
  }
  if (!has_gpus && wish.n_parts > 1) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("plan: {} parts take as many GPUs for each rank: give --gpus-per-node",
                            wish.n_parts));
  }
  SlurmPlan plan{.n_nodes = wish.n_nodes, .gpus_per_node = wish.gpus_per_node};
  plan.tasks_per_node = has_gpus ? wish.gpus_per_node / wish.n_parts : wish.tasks_per_node;
  plan.n_tasks = plan.n_nodes * plan.tasks_per_node;
  if (wish.cpus_per_node > 0) {
    plan.cpus_per_task = std::max(1, wish.cpus_per_node / plan.tasks_per_node);
  }
  return plan;
}

std::string batch_script(const SlurmPlan& plan, const std::string& program) {
  std::string script = "#!/bin/sh\n";
  script += fmt::format("#SBATCH --nodes={}\n", plan.n_nodes);
  script += fmt::format("#SBATCH --ntasks-per-node={}\n", plan.tasks_per_node);
  if (plan.gpus_per_node > 0) {
    script += fmt::format("#SBATCH --gres=gpu:{}\n", plan.gpus_per_node);
  }
  if (plan.cpus_per_task > 0) {
    script += fmt::format("#SBATCH --cpus-per-task={}\n", plan.cpus_per_task);
  }
  script += fmt::format("# {} ranks\n", plan.n_tasks);
  // Steps since Slurm 22.05 do not inherit this option from the job.
  const char* const cpus =
      plan.cpus_per_task > 0 ? "--cpus-per-task=\"$SLURM_CPUS_PER_TASK\" " : "";
  return script + fmt::format("srun {}{}\n", cpus, program);
}

namespace {

// Records of a CSV file with a line of column names. A quoted field may contain commas, line ends
// and doubled quotes.
class CostTable {
 public:
  explicit CostTable(const std::string& path) : path_(path), lines_(read_text_lines(path)) {
    names_ = next().value_or(std::vector<std::string>());
  }

  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

  // Number of the line in which the last record began, from 1.
  [[nodiscard]] std::size_t line() const { return line_; }

  // Returns the fields of the next record, or std::nullopt at the end. Skips empty lines.
  std::optional<std::vector<std::string>> next() {
    while (n_read_ < lines_.size() && lines_[n_read_].empty()) {
      ++n_read_;
    }
    if (n_read_ == lines_.size()) {
      return std::nullopt;
    }
    line_ = n_read_ + 1;
    std::vector<std::string> fields(1);
    bool is_quoted = false;
    do {
      append_line(lines_[n_read_++], fields, is_quoted);
    } while (is_quoted && n_read_ < lines_.size());
    if (is_quoted) {
      refuse("a quote is never closed");
    }
    if (!names_.empty() && fields.size() != names_.size()) {
      refuse(fmt::format("{} fields for {} columns", fields.size(), names_.size()));
    }
    return fields;
  }

 private:
  void append_line(std::string_view text, std::vector<std::string>& fields, bool& is_quoted) const {
    if (is_quoted) {
      fields.back() += '\n';
    }
    for (std::size_t at = 0; at < text.size(); ++at) {
      if (text[at] == '"') {
        if (is_quoted && text.substr(at + 1).starts_with('"')) {
          fields.back() += text[++at];
        } else {
          is_quoted = !is_quoted;
        }
      } else if (text[at] == ',' && !is_quoted) {
        fields.emplace_back();
      } else {
        fields.back() += text[at];
      }
    }
  }

  [[noreturn]] void refuse(const std::string& problem) const {
    throw Error(ErrorCode::kCorruptData, fmt::format("{}:{}: {}", path_, line_, problem));
  }

  const std::string& path_;
  std::vector<std::string> lines_;
  std::vector<std::string> names_;
  std::size_t n_read_ = 0;
  std::size_t line_ = 0;
};

// A column of the file, which the file may lack.
class Column {
 public:
  Column(const CostTable& table, const std::string& path, std::string_view name)
      : path_(path), name_(name) {
    const std::vector<std::string>& names = table.names();
    const auto found = std::find(names.begin(), names.end(), name);
    if (found != names.end()) {
      place_ = static_cast<std::size_t>(found - names.begin());
    }
  }

  [[nodiscard]] bool is_there() const { return place_.has_value(); }

  // Returns std::nullopt if the file lacks the column.
  [[nodiscard]] std::optional<double> read(const CostTable& table,
                                           const std::vector<std::string>& fields) const {
    if (!place_) {
      return std::nullopt;
    }
    const std::string& field = fields[*place_];
    double number = 0;
    const char* const end = field.data() + field.size();
    const auto [stop, error] = std::from_chars(field.data(), end, number);
    if (error != std::errc() || stop != end || !std::isfinite(number) || number < 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}:{}: {} is \"{}\": it must be a number, and not negative",
                              path_,
                              table.line(),
                              name_,
                              field));
    }
    return number;
  }

 private:
  const std::string& path_;
  std::string_view name_;
  std::optional<std::size_t> place_;
};

}  // namespace

pipeline::LayerCosts read_layer_costs(const std::string& path) {
  CostTable table(path);
  const Column forward(table, path, "forward_ms");
  const Column backward(table, path, "backward_ms");
  const Column weight(table, path, "weight_ms");
  const Column activation(table, path, "activation_mib");
  if (!forward.is_there() || !backward.is_there()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: the first line must name the columns forward_ms and backward_ms", path));
  }
  pipeline::LayerCosts costs;
  while (const std::optional<std::vector<std::string>> fields = table.next()) {
    const double whole = backward.read(table, *fields).value_or(0);
    const double weights = weight.read(table, *fields).value_or(whole / 2);
    if (weights > whole) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}:{}: weight_ms is a part of backward_ms, and {} is more than {}",
                              path,
                              table.line(),
                              weights,
                              whole));
    }
    costs.times.push_back({.forward = forward.read(table, *fields).value_or(0),
                           .backward_input = whole - weights,
                           .backward_weight = weights});
    if (const std::optional<double> mib = activation.read(table, *fields)) {
      costs.activation_mib.push_back(*mib);
    }
  }
  if (costs.times.empty()) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: there are no layers", path));
  }
  return costs;
}

namespace {

using pipeline::LayerRange;
using pipeline::StageTimes;

std::vector<LayerRange> cut(const pipeline::LayerCosts& layers, Balance balance, int n_stages) {
  const int n_layers = static_cast<int>(layers.times.size());
  if (n_layers < n_stages) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("plan: {} layers can't be cut into {} stages", n_layers, n_stages));
  }
  switch (balance) {
    case Balance::kCount:
      return pipeline::cut_evenly(n_layers, n_stages);
    case Balance::kMemory:
      if (layers.activation_mib.empty()) {
        throw Error(ErrorCode::kInvalidArgument,
                    "plan: to balance memory the file of layers needs a column activation_mib");
      }
      return pipeline::cut_by_cost(layers.activation_mib, n_stages);
    case Balance::kTime:
      break;
  }
  std::vector<double> times;
  for (const StageTimes& layer : layers.times) {
    times.push_back(layer.sum());
  }
  return pipeline::cut_by_cost(times, n_stages);
}

// The stages of a rank take equal parts of the rank's time.
StageTimes share_of(const StageTimes& times, int n_stages) {
  return {.forward = times.forward / n_stages,
          .backward_input = times.backward_input / n_stages,
          .backward_weight = times.backward_weight / n_stages};
}

// Returns the time of all chunks in all stages, one after the other.
double serial_ms(const PipelinePlan& plan) {
  double sum = 0;
  for (const StageTimes& stage : plan.stages) {
    sum += stage.sum() * plan.schedule.n_chunks;
  }
  return sum;
}

// Returns the formula's bubble in percent, for ranks that all compute for the same time.
std::string formula_percent(const PipelinePlan& plan) {
  if (!plan.formula) {
    return "-";
  }
  const double busy = serial_ms(plan) / plan.schedule.n_ranks();
  return fmt::format("{}{:.1f}",
                     plan.formula->is_upper_bound ? "<=" : "",
                     100 * plan.formula->time / (plan.formula->time + busy));
}

std::string join_stages(const PipelinePlan& plan, int rank) {
  std::vector<std::string> stages;
  for (int stage = 0; stage < plan.schedule.n_stages(); ++stage) {
    if (plan.schedule.rank_of_stage[static_cast<std::size_t>(stage)] == rank) {
      stages.push_back(std::to_string(stage));
    }
  }
  return fmt::format("{}", fmt::join(stages, ","));
}

std::string join_layers(const PipelinePlan& plan, int rank) {
  std::vector<std::string> layers;
  for (std::size_t stage = 0; stage < plan.parts.size(); ++stage) {
    if (plan.schedule.rank_of_stage[stage] == rank) {
      const LayerRange& part = plan.parts[stage];
      layers.push_back(part.count() == 1 ? std::to_string(part.begin)
                                         : fmt::format("{}-{}", part.begin, part.end - 1));
    }
  }
  return fmt::format("{}", fmt::join(layers, ","));
}

// Counts activations of a chunk in a rank's whole share of the model, so that schedules are
// comparable.
double largest_activations(const PipelinePlan& plan) {
  double largest = 0;
  for (int rank = 0; rank < plan.schedule.n_ranks(); ++rank) {
    largest = std::max(
        largest,
        pipeline::peak_activations(plan.timeline, rank) / pipeline::stages_of(plan.schedule, rank));
  }
  return largest;
}

double largest_mib(const PipelinePlan& plan) {
  double largest = 0;
  for (int rank = 0; rank < plan.schedule.n_ranks(); ++rank) {
    largest =
        std::max(largest, pipeline::peak_activations(plan.timeline, rank, plan.activation_mib));
  }
  return largest;
}

}  // namespace

PipelinePlan make_pipeline_plan(const PipelineWish& wish,
                                pipeline::Schedule schedule,
                                const std::string& name) {
  PipelinePlan plan{.name = name,
                    .schedule = std::move(schedule),
                    .parts = {},
                    .stages = {},
                    .activation_mib = {},
                    .timeline = {},
                    .formula = {}};
  const int n_stages = plan.schedule.n_stages();
  if (wish.layers) {
    plan.parts = cut(*wish.layers, wish.balance, n_stages);
    plan.stages = pipeline::times_of_parts(wish.layers->times, plan.parts);
    if (!wish.layers->activation_mib.empty()) {
      plan.activation_mib = pipeline::sums_of_parts(wish.layers->activation_mib, plan.parts);
    }
  } else {
    for (const int rank : plan.schedule.rank_of_stage) {
      plan.stages.push_back(share_of(wish.rank_times, pipeline::stages_of(plan.schedule, rank)));
    }
  }
  plan.timeline =
      pipeline::simulate(plan.schedule,
                         pipeline::time_of(plan.stages),
                         {.transfer = wish.transfer_ms, .is_by_arrival = wish.is_by_arrival});
  return plan;
}

PipelinePlan make_pipeline_plan(const PipelineWish& wish, const pipeline::KnownSchedule& known) {
  const pipeline::Setting setting{
      .n_ranks = wish.n_ranks,
      .n_chunks = wish.n_chunks,
      .stages_per_rank = known.stages_per_rank > 0 ? known.stages_per_rank : wish.stages_per_rank};
  PipelinePlan plan = make_pipeline_plan(wish, known.make(setting), known.name);
  // The formulas assume equal stages and messages that take no time.
  if (!wish.layers && wish.transfer_ms == 0) {
    plan.formula = known.idle_time(setting, plan.stages.front());
  }
  return plan;
}

std::string describe(const PipelinePlan& plan) {
  const double step = pipeline::step_time(plan.timeline);
  const double serial = serial_ms(plan);
  std::string text = pipeline::render_text(plan.timeline);
  text += fmt::format("\n{}: {} ranks, {} stages, {} chunks\n",
                      plan.name,
                      plan.schedule.n_ranks(),
                      plan.schedule.n_stages(),
                      plan.schedule.n_chunks);
  text +=
      fmt::format("step {:.3f} ms; one rank after the other takes {:.3f} ms, {:.2f} times that\n",
                  step,
                  serial,
                  step > 0 ? serial / step : 1);
  text += fmt::format("bubble {:.1f} %, by the formula {} %\n\n",
                      100 * pipeline::bubble(plan.timeline),
                      formula_percent(plan));
  text += fmt::format("{:>4}  {:>8}", "rank", "stages");
  text += plan.parts.empty() ? "" : fmt::format("  {:>14}", "layers");
  text += fmt::format("  {:>10}  {:>8}  {:>11}", "busy ms", "bubble %", "activations");
  text += plan.activation_mib.empty() ? "\n" : fmt::format("  {:>10}\n", "MiB");
  for (int rank = 0; rank < plan.schedule.n_ranks(); ++rank) {
    text += fmt::format("{:>4}  {:>8}", rank, join_stages(plan, rank));
    text += plan.parts.empty() ? "" : fmt::format("  {:>14}", join_layers(plan, rank));
    text += fmt::format("  {:>10.3f}  {:>8.1f}  {:>11.0f}",
                        pipeline::busy_time(plan.timeline, rank),
                        100 * pipeline::bubble(plan.timeline, rank),
                        pipeline::peak_activations(plan.timeline, rank));
    text += plan.activation_mib.empty()
                ? "\n"
                : fmt::format("  {:>10.1f}\n",
                              pipeline::peak_activations(plan.timeline, rank, plan.activation_mib));
  }
  return text;
}

std::string compare(const std::vector<PipelinePlan>& plans) {
  const bool has_mib = !plans.empty() && !plans.front().activation_mib.empty();
  std::string text = fmt::format("{:<16}  {:>6}  {:>10}  {:>8}  {:>9}  {:>11}",
                                 "schedule",
                                 "stages",
                                 "step ms",
                                 "bubble %",
                                 "formula %",
                                 "activations");
  text += has_mib ? fmt::format("  {:>10}\n", "MiB") : "\n";
  for (const PipelinePlan& plan : plans) {
    text += fmt::format("{:<16}  {:>6}  {:>10.3f}  {:>8.1f}  {:>9}  {:>11.1f}",
                        plan.name,
                        plan.schedule.n_stages(),
                        pipeline::step_time(plan.timeline),
                        100 * pipeline::bubble(plan.timeline),
                        formula_percent(plan),
                        largest_activations(plan));
    text += has_mib ? fmt::format("  {:>10.1f}\n", largest_mib(plan)) : "\n";
  }
  return text +
         "\nactivations: the most that a rank holds, in chunks of all of the rank's stages\n";
}

}  // namespace unisono::cli
