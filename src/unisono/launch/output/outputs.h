#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/launch/output/console.h"
#include "unisono/launch/output/line_collapser.h"
#include "unisono/launch/output/line_format.h"
#include "unisono/launch/output/sink.h"
#include "unisono/launch/output/stream_selection.h"
#include "unisono/launch/output/tail.h"
#include "unisono/launch/output/worker_output.h"
#include "unisono/net/event_loop.h"

namespace unisono::launch {

/// What the user asked of the output.
struct OutputOptions {
  int n_workers = 1;
  bool prefix = false;     ///< "[rank 3] " before each line, or "[alpha:3] ".
  bool collapses = false;  ///< Equal lines of several ranks are one, with their ranks.
  LineFormat format = {};
  std::string log_dir;  ///< Empty: no log files.
  OutputTargets targets = {};
};

/// All output of a node's ranks, from their pipes to our stdout and stderr.
class Outputs {
 public:
  /// Creates the folder for log files. Throws Error(kSystem) when that fails. `loop` must outlive
  /// the object. `on_error` gets log files that can't be written.
  Outputs(net::EventLoop& loop,
          const OutputOptions& options,
          Sinks sinks,
          WorkerOutput::OnError on_error);

  Outputs(const Outputs&) = delete;
  Outputs& operator=(const Outputs&) = delete;
  Outputs(Outputs&&) = delete;
  Outputs& operator=(Outputs&&) = delete;
  ~Outputs();

  /// The rank's ends of its stdout and stderr.
  struct Ends {
    Fd out;
    Fd err;
  };

  /// Says which ranks are to come: for prefixes and log files, which it creates, or goes on with.
  /// Throws Error(kSystem).
  void name_ranks(int first_rank);

  /// Makes them for a rank that starts, or starts again.
  [[nodiscard]] Ends open(int local_rank);

  /// To be called after each round of the loop: writes what was collected, and stops reading from
  /// ranks while nobody reads from us.
  void flush();

  /// When flush() is to be called again, whatever happens.
  [[nodiscard]] Deadline deadline() const;

  /// Hands on what is left in the pipes. Nothing may hold their other ends any more.
  void drain();

  [[nodiscard]] bool is_flushed() const {
    return sinks_.out->backlog() == 0 && sinks_.err->backlog() == 0;
  }

  /// Passes the size of our terminal on to those of the ranks.
  void resize();

  /// Writes `text` to stderr, with "[unisono run] ", or "[unisono run on alpha] ", before each
  /// line.
  void message(std::string_view text);

  /// What a report repeats of a rank's output: the last lines, or one where all have been shown.
  [[nodiscard]] std::deque<std::string> last_lines(int local_rank) const;

 private:
  struct Worker {
    Tail tail;
    std::vector<std::unique_ptr<WorkerOutput>> streams;
  };

  void add_stream(Worker& worker, int local_rank, Stream stream);
  [[nodiscard]] bool has_plain_lines() const;
  void take_line(Source source, std::string_view text);
  void put_line(std::span<const int> ranks, Stream stream, std::string_view text);
  void on_readable(WorkerOutput& output);
  void watch(WorkerOutput& output);
  void unwatch(const WorkerOutput& output);
  void throttle(Stream stream, bool& is_paused);

  [[nodiscard]] Sink& sink(Stream stream) {
    return *(stream == Stream::kOut ? sinks_.out : sinks_.err);
  }

  net::EventLoop& loop_;
  OutputOptions options_;
  std::optional<int> first_rank_;
  std::set<std::string> log_files_;  // All that this object has made.
  WorkerOutput::OnError on_error_;
  Sinks sinks_;
  Console console_;
  std::optional<LineCollapser> collapser_;
  bool out_paused_ = false;
  bool err_paused_ = false;
  std::set<int> watched_;
  std::deque<Worker> workers_;  // A deque: the streams refer to their worker's tail.
};

}  // namespace unisono::launch
