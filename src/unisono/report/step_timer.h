#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace unisono {

/// Where a rank's time of one step went, in seconds.
struct StepTimes {
  double step = 0;  ///< All of it, from the end of the step before.
  double forward = 0;
  double backward = 0;  ///< With the communication that goes on behind it.
  double exposed = 0;   ///< In which the rank did nothing but wait for communication.
};

/// Adds up where the time of a step goes, which may have several forward and backward passes, and
/// keeps the last steps. A value; the caller reads the clock.
class StepTimer {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  /// So many steps are kept.
  static constexpr std::size_t kMostKept = 200;

  /// When the first step's time begins; later calls change nothing.
  void begin(Time now);

  void add_forward(Duration duration) { forward_ += duration; }

  void add_backward(Duration duration) { backward_ += duration; }

  void add_exposed(Duration duration) { exposed_ += duration; }

  /// The step is made, in which the ranks have averaged so many bytes of gradients.
  void end_step(Time now, std::int64_t n_bytes);

  /// The step came to nothing.
  void drop_step(Time now);

  [[nodiscard]] std::int64_t n_steps() const { return n_steps_; }

  /// Zeros before the first step.
  [[nodiscard]] const StepTimes& last_step() const { return last_; }

  /// Of the last step.
  [[nodiscard]] std::int64_t n_bytes() const { return n_bytes_; }

  /// The last kMostKept steps, or as many as there are, in their order.
  [[nodiscard]] std::vector<StepTimes> last_steps() const;

 private:
  std::optional<Time> begin_;
  Duration forward_{};
  Duration backward_{};
  Duration exposed_{};
  std::int64_t n_steps_ = 0;
  std::int64_t n_bytes_ = 0;
  StepTimes last_;
  std::vector<StepTimes> kept_;  // step i at i % kMostKept
};

}  // namespace unisono
