#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace unisono {

/// Times of a rank's parts of one step, in seconds.
struct StepTimes {
  double step = 0;  ///< Total time since the end of the previous step.
  double forward = 0;
  double backward = 0;  ///< Includes the overlapped communication.
  double exposed = 0;   ///< Time in which the rank only waited for communication.
};

/// Adds up the times of the parts of a step, which may have several forward and backward passes,
/// and stores the last steps. A value type; the caller reads the clock.
class StepTimer {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  /// Maximum number of stored steps.
  static constexpr std::size_t kMostKept = 200;

  /// Starts the time of the first step. Later calls have no effect.
  void begin(Time now);

  /// Adds the time of a forward pass of the current step.
  void add_forward(Duration duration) { forward_ += duration; }

  /// Adds the time of a backward pass of the current step.
  void add_backward(Duration duration) { backward_ += duration; }

  /// Adds time in which the rank only waited for communication.
  void add_exposed(Duration duration) { exposed_ += duration; }

  /// Ends a step in which the ranks have averaged `n_bytes` of gradients.
  void end_step(Time now, std::int64_t n_bytes);

  /// Discards the current step.
  void drop_step(Time now);

  [[nodiscard]] std::int64_t n_steps() const { return n_steps_; }

  /// Returns the times of the last step; zeros before the first step.
  [[nodiscard]] const StepTimes& last_step() const { return last_; }

  /// Returns the bytes of the last step.
  [[nodiscard]] std::int64_t n_bytes() const { return n_bytes_; }

  /// Returns the last kMostKept steps, or fewer if there are not as many, in order.
  [[nodiscard]] std::vector<StepTimes> last_steps() const;

 private:
  std::optional<Time> begin_;
  Duration forward_{};
  Duration backward_{};
  Duration exposed_{};
  std::int64_t n_steps_ = 0;
  std::int64_t n_bytes_ = 0;
  StepTimes last_;
  std::vector<StepTimes> kept_;  // step i is at index i % kMostKept
};

class ProcessGroup;

/// Times of a rank's steps in seconds. The members are medians and need not add up.
struct RankStepReport {
  double step = 0;
  double forward = 0;
  double backward = 0;       ///< Includes the overlapped communication.
  double communication = 0;  ///< Exposed communication: the minimum over all ranks in that step.
  /// Time of waiting for the slowest rank: this rank's exposed time beyond the minimum.
  double waiting = 0;
  double other = 0;          ///< Data, loss, optimizer.
  std::int64_t n_bytes = 0;  ///< Bytes of gradients that were averaged in the last step.
};

/// Times of the last steps on every rank. `ranks` is empty if no step was made.
struct StepReport {
  std::size_t n_steps = 0;  ///< Number of steps in the medians.
  std::vector<RankStepReport> ranks;
  /// The rank for which the others wait, if any.
  std::optional<int> slowest;

  /// Returns a table, and a line that names the slowest rank and the part in which it takes longer.
  [[nodiscard]] std::string table() const;

  /// Returns one line: "step 12.3 ms: forward 33%, ...", with the times of the slowest rank, or of
  /// rank 0.
  [[nodiscard]] std::string line() const;
};

/// Computes a report from each rank's last steps, which must be the same steps on all ranks. Does
/// not compare the ranks' clocks: the computing and waiting times of each rank show the slowest
/// rank.
[[nodiscard]] StepReport make_step_report(const std::vector<std::vector<StepTimes>>& ranks,
                                          const std::vector<std::int64_t>& n_bytes);

/// Gathers the timers of all ranks and calls make_step_report(). A collective operation with 6 KiB
/// per rank.
[[nodiscard]] StepReport gather_step_report(ProcessGroup& group,
                                            const StepTimer& timer,
                                            std::optional<std::chrono::milliseconds> timeout = {});

}  // namespace unisono
