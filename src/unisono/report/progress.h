#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/comm/process_group.h"

namespace unisono::report {

/// A value that a training reports, such as {"loss", 0.31}.
struct NamedValue {
  std::string name;
  double value = 0;
};

/// Form of the output of Progress.
enum class ProgressFormat {
  kAuto,   ///< A bar on a terminal, otherwise lines.
  kLines,  ///< Lines of text.
  kJson,   ///< Lines with one JSON object each.
  kNone    ///< No output, not even from print(); files are written.
};

/// Options of Progress. Must be equal on every rank.
struct ProgressOptions {
  /// Steps of the whole training; 0 if unknown.
  std::int64_t total = 0;
  /// Steps of the earlier training from which this training continues.
  std::int64_t start = 0;
  /// Name of the units in a step, in addition to steps.
  std::string unit = "samples";
  /// Beginning of each line; see set_title().
  std::string title = {};
  /// Form of the output.
  ProgressFormat format = ProgressFormat::kAuto;
  /// Minimum time between lines. 0 writes a line for each step.
  std::chrono::milliseconds interval = std::chrono::seconds(5);
  /// File descriptor of the output: 1 for stdout, 2 for stderr.
  int fd = 1;
  /// File to which a line of JSON is appended for each recorded step.
  std::string json_file = {};
  /// Folder for an event file of TensorBoard: `tensorboard --logdir FOLDER`.
  std::string tensorboard = {};
  /// Interval in steps between the records in the files.
  std::int64_t record_every = 1;
  /// Every rank reports, not only rank 0: lines begin with the rank, and each rank has a
  /// TensorBoard folder such as FOLDER/rank3.
  bool all_ranks = false;
};

/// Says how far a training is, and how fast: on the terminal, in lines, for programs and in
/// TensorBoard. Local: ranks that don't report return at once from all members.
///
///     unisono::report::Progress progress(*group, {.total = n_steps, .tensorboard = "runs/mnist"});
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
  /// Throws Error: kInvalidArgument on all ranks for invalid options; kSystem and kInvalidArgument
  /// on reporting ranks if a file cannot be written.
  Progress(const ProcessGroup& group, const ProgressOptions& options);

  /// For a program without a process group.
  explicit Progress(const ProgressOptions& options);

  /// For a program that has its rank and world size from another source.
  Progress(int rank, int world_size, const ProgressOptions& options);

  /// Calls finish().
  ~Progress();

  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  Progress(Progress&&) = delete;
  Progress& operator=(Progress&&) = delete;

  /// Reports one step with `n_samples` samples (of all ranks, if the rate should include all
  /// ranks). May exceed the total. Throws Error(kInvalidArgument) for a negative number.
  void step(const std::vector<NamedValue>& values = {}, std::int64_t n_samples = 0);

  /// Records values that do not belong to a step, such as the accuracy after an epoch. Later lines
  /// show the values too.
  void record(const std::vector<NamedValue>& values);

  /// Sets the beginning of later lines, such as "epoch 2/3".
  void set_title(const std::string& title);

  /// Prints a line without disturbing the bar.
  void print(std::string_view line);

  /// Removes the bar until the next step, so that other ranks can print.
  void clear();

  /// Returns the number of steps of the training so far.
  [[nodiscard]] std::int64_t n_steps() const;

  /// Prints a last line, as text with the mean rate or as JSON. Later calls have no effect on the
  /// output.
  void finish();

 private:
  class Reporter;

  std::unique_ptr<Reporter> reporter_;  // null on ranks that do not report
  std::int64_t n_steps_;
};

class AppendFile;

/// An event file for TensorBoard: `tensorboard --logdir FOLDER`.
///
/// Each call is a single write: a killed process leaves a readable file. Write errors do not throw
/// after construction: if the disk is full, a line on stderr reports the error, and records that
/// cannot be written are dropped. Not thread-safe.
class EventFile {
 public:
  /// Creates a new file in `folder`, and the folder if it is missing. If a training continues from
  /// a checkpoint after `resumed_at` steps, the new file supersedes the later steps in older files
  /// of the folder.
  ///
  /// Throws Error(kSystem) if the file cannot be written.
  explicit EventFile(const std::string& folder, std::optional<std::int64_t> resumed_at = {});
  ~EventFile();

  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;
  EventFile(EventFile&&) noexcept;
  EventFile& operator=(EventFile&&) noexcept;

  /// Adds values of a step, stored in 32 bits.
  void add_scalars(std::int64_t step, std::span<const NamedValue> values);

  /// Adds a text, which TensorBoard shows as Markdown.
  void add_text(std::int64_t step, std::string_view name, std::string_view text);

  [[nodiscard]] const std::string& path() const;

 private:
  std::unique_ptr<AppendFile> file_;
};

}  // namespace unisono::report
