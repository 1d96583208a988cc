#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/comm/process_group.h"
#include "unisono/report/named_value.h"

namespace unisono {

enum class ProgressFormat {
  kAuto,   ///< A bar on a terminal, else lines.
  kLines,  ///< Lines.
  kJson,   ///< Each line is an object.
  kNone    ///< Nothing, not even what print() gets; files are written.
};

/// Equal on every rank.
struct ProgressOptions {
  /// Steps of the whole training; 0: not known.
  std::int64_t total = 0;
  /// Steps that were made before, by a training that this one goes on from.
  std::int64_t start = 0;
  /// What steps count beside themselves.
  std::string unit = "samples";
  /// What lines begin with; see set_title().
  std::string title = {};
  ProgressFormat format = ProgressFormat::kAuto;
  /// Lines are at least so far apart. 0: a line for each step.
  std::chrono::milliseconds interval = std::chrono::seconds(5);
  /// Where they go: stdout, or 2 for stderr.
  int fd = 1;
  /// A file to which a line of JSON is appended for each step that is recorded.
  std::string json_file = {};
  /// A folder for an event file of TensorBoard: `tensorboard --logdir FOLDER`.
  std::string tensorboard = {};
  /// Every so many steps are recorded in the files.
  std::int64_t record_every = 1;
  /// Every rank reports, and not rank 0 alone: lines begin with the rank, and TensorBoard has a
  /// folder of each, such as FOLDER/rank3.
  bool all_ranks = false;
};

/// Says how far a training is, and how fast: on the terminal, in lines, for programs and in
/// TensorBoard. Local: ranks that don't report return at once from all members.
///
///     unisono::Progress progress(*group, {.total = n_steps, .tensorboard = "runs/mnist"});
///     for (...) {
///       ...
///       progress.step({{"loss", loss.item<double>()}}, 64 * group->world_size());
///     }
///     progress.finish();
///
/// Values are this rank's: average them first where they are to be all ranks'. The first one of a
/// name that is not finite is a warning on stderr. What can't be written any more (a full disk, a
/// reader that is gone) is a warning, too, and the training goes on.
///
/// A terminal has one bar: a second reporter, beside one that has not finished, writes lines. One
/// thread at a time.
class Progress {
 public:
  /// Throws Error, on all ranks: kInvalidArgument for options that make no sense. On ranks that
  /// report: kSystem and kInvalidArgument when a file can't be written.
  Progress(const ProcessGroup& group, const ProgressOptions& options);

  /// In a program without a process group.
  explicit Progress(const ProgressOptions& options);

  /// In a program whose ranks are known otherwise.
  Progress(int rank, int world_size, const ProgressOptions& options);

  /// As finish().
  ~Progress();

  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  Progress(Progress&&) = delete;
  Progress& operator=(Progress&&) = delete;

  /// A step was made, with so many samples; of all ranks, if the rate is to be. May go on beyond
  /// the total. Throws Error(kInvalidArgument) for a negative number.
  void step(const std::vector<NamedValue>& values = {}, std::int64_t n_samples = 0);

  /// Values of the training as it is, which no step brings: the accuracy after an epoch. They are
  /// recorded, and shown from now on.
  void record(const std::vector<NamedValue>& values);

  /// What lines begin with from now on, such as "epoch 2/3".
  void set_title(const std::string& title);

  /// A line of your own, which does not disturb the bar.
  void print(std::string_view line);

  /// Takes the bar away until the next step: where other ranks print.
  void clear();

  /// Steps of the training so far.
  [[nodiscard]] std::int64_t n_steps() const;

  /// Shows a last line with the mean rate. What comes later is not reported.
  void finish();

 private:
  class Reporter;

  std::unique_ptr<Reporter> reporter_;  // of ranks that report
  std::int64_t n_steps_;
};

}  // namespace unisono
