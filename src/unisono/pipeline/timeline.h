#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "unisono/pipeline/schedule.h"

namespace unisono::pipeline {

/// Start and end of an action, in any unit of time.
struct Span {
  Action action;
  double start;
  double end;
};

/// A step of a pipeline, measured or simulated. All ranks use the same clock.
struct Timeline {
  std::vector<std::vector<Span>> ranks;  ///< Actions of each rank, in the order of their starts.
};

/// Returns the first start on any rank.
[[nodiscard]] double start_time(const Timeline& timeline);

/// Returns the time from start_time() until the last end on any rank.
[[nodiscard]] double step_time(const Timeline& timeline);

/// Returns the time in which `rank` computed.
[[nodiscard]] double busy_time(const Timeline& timeline, int rank);

/// Returns the share of the step in which `rank`, or the mean of all ranks, did not compute: 0 to
/// 1.
[[nodiscard]] double bubble(const Timeline& timeline, int rank);
[[nodiscard]] double bubble(const Timeline& timeline);

/// Returns the lowest stage of the actions of `rank`; 0 for a rank without actions.
[[nodiscard]] int first_stage(const Timeline& timeline, int rank);

/// Returns the largest sum of activations that `rank` held at once. An activation of stage s counts
/// `sizes[s]` (1 without sizes), from the start of the forward until the end of the backward or of
/// the weight gradients.
[[nodiscard]] double peak_activations(const Timeline& timeline,
                                      int rank,
                                      const std::vector<double>& sizes = {});

/// Draws a step in letters: for each rank a name and a line of at most `max_columns` columns, then
/// a legend.
///
/// An action is shown as a letter (in lower case unless the stage is the first of the rank), the
/// number of the chunk, and blanks. An action that is too narrow loses the number first and then
/// the letter. Points are idle time.
[[nodiscard]] std::string render_text(const Timeline& timeline, int max_columns = 120);

/// Draws a step as an SVG image. `unit` is the unit of the times, for the axis: "ms".
[[nodiscard]] std::string render_svg(const Timeline& timeline, const std::string& unit);

/// Times of a chunk in a stage, in any unit.
struct StageTimes {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;

  [[nodiscard]] double backward() const { return backward_input + backward_weight; }

  [[nodiscard]] double sum() const { return forward + backward(); }
};

/// Returns the duration of an action.
using TimeOf = std::function<double(const Action&)>;

/// Returns a TimeOf for stages that take the same time for each chunk.
[[nodiscard]] TimeOf time_of(std::vector<StageTimes> stages);

/// Settings of simulate().
struct SimulationOptions {
  double transfer = 0;           ///< Time of a message between ranks, which compute meanwhile.
  std::vector<Skip> skips = {};  ///< Skip connections.
  /// True: ranks choose among arrived inputs by next_action(). False: ranks keep their order.
  bool is_by_arrival = false;
};

/// Simulates a step of a valid schedule. Throws Error(kInternal) if the schedule cannot finish.
[[nodiscard]] Timeline simulate(const Schedule& schedule,
                                const TimeOf& time_of_action,
                                const SimulationOptions& options = {});

/// End times of the actions that other stages depend on, in a simulated run.
class FinishTimes {
 public:
  /// No action is finished.
  FinishTimes(int n_stages, int n_chunks);

  /// Records the end of an action. Weight gradients are ignored, because no stage depends on them.
  void set(const Action& action, double end);

  /// Returns the time at which all inputs of the action are on its rank; infinity while an input is
  /// not finished.
  [[nodiscard]] double ready_at(const Action& action,
                                const Schedule& schedule,
                                double transfer = 0,
                                const std::vector<Skip>& skips = {}) const;

 private:
  [[nodiscard]] std::size_t index_of(bool is_forward, int stage, int chunk) const;

  int n_stages_;
  int n_chunks_;
  std::vector<double> ends_;
};

}  // namespace unisono::pipeline
