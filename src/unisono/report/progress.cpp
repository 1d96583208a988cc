#include "unisono/report/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/rendezvous/this_node.h"
#include "unisono/report/append_file.h"
#include "unisono/report/event_record.h"
#include "unisono/report/progress_text.h"
#include "unisono/report/screen.h"

namespace unisono::report {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenBars(100);

void check(const ProgressOptions& options) {
  const auto refuse = [](const std::string& problem) {
    throw Error(ErrorCode::kInvalidArgument, "Progress: " + problem);
  };
  if (options.total < 0 || options.start < 0) {
    refuse("total is " + std::to_string(options.total) + " and start " +
           std::to_string(options.start) + "; neither may be negative");
  }
  if (options.interval < std::chrono::milliseconds(0)) {
    refuse("interval is " + std::to_string(options.interval.count()) +
           " ms; it must not be negative");
  }
  if (options.record_every < 1) {
    refuse("record_every is " + std::to_string(options.record_every) + "; it must be at least 1");
  }
}

double unix_seconds() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since_epoch).count();
}

std::unique_ptr<AppendFile> open_json(const std::string& path, const base::Logger& logger) {
  if (path.empty()) {
    return nullptr;
  }
  auto file = std::make_unique<AppendFile>(path, AppendFile::Open::kOrCreate, logger);
  if (file->ends_otherwise('\n')) {
    (void)file->append("\n");
  }
  return file;
}

std::optional<EventFile> open_events(const ProgressOptions& options, const std::string& folder) {
  if (options.tensorboard.empty()) {
    return std::nullopt;
  }
  return EventFile(options.tensorboard + folder,
                   options.start > 0 ? std::optional(options.start) : std::nullopt);
}

}  // namespace

class Progress::Reporter {
 public:
  Reporter(int rank, int world_size, const ProgressOptions& options)
      : options_(options),
        rank_(rank),
        logger_("rank " + std::to_string(rank)),
        lines_begin_(options.all_ranks && world_size > 1 ? "rank " + std::to_string(rank) : ""),
        json_(open_json(options.json_file, logger_)),
        events_(open_events(options,
                            options.all_ranks ? "/rank" + std::to_string(rank) : std::string())),
        start_(Clock::now()),
        next_line_(start_ + options.interval),
        rates_(start_) {
    state_.unit = options.unit;
    state_.total = options.total;
    set_title(options.title);
    if (options.format != ProgressFormat::kNone) {
      screen_ =
          std::make_unique<Screen>(options.fd, options.format == ProgressFormat::kAuto, logger_);
    }
  }

  void set_title(const std::string& title) {
    const bool has_both = !lines_begin_.empty() && !title.empty();
    state_.title = lines_begin_ + (has_both ? ": " : "") + title;
  }

  void step(std::int64_t step, const std::vector<NamedValue>& values, std::int64_t n_samples) {
    const Clock::time_point now = Clock::now();
    state_.step = step;
    ++state_.n_steps;
    state_.n_samples += n_samples;
    rates_.note(now, state_.n_steps, state_.n_samples);
    take(values);
    if (step % options_.record_every == 0) {
      write_files(values, now);
    }
    show(now);
  }

  void record(std::int64_t step, const std::vector<NamedValue>& values) {
    state_.step = step;
    take(values);
    write_files(values, Clock::now());
  }

  void print(std::string_view line) {
    if (screen_) {
      screen_->print(std::string(line) + (line.ends_with('\n') ? "" : "\n"));
    }
  }

  void clear() {
    if (screen_) {
      screen_->clear_bar();
    }
  }

  void finish(std::int64_t step) {
    state_.step = step;
    const Clock::time_point now = Clock::now();
    update_rates(now);
    if (options_.format == ProgressFormat::kJson) {
      print(json_line(state_, rank_, unix_seconds()));
    } else {
      print(end_text(state_));
    }
  }

 private:
  void take(const std::vector<NamedValue>& values) {
    for (const NamedValue& value : values) {
      warn_if_not_finite(value);
      const auto known = std::ranges::find(state_.values, value.name, &NamedValue::name);
      if (known == state_.values.end()) {
        state_.values.push_back(value);
      } else {
        known->value = value.value;
      }
    }
  }

  void warn_if_not_finite(const NamedValue& value) {
    if (std::isfinite(value.value) || std::ranges::count(warned_of_, value.name) > 0) {
      return;
    }
    warned_of_.push_back(value.name);
    clear();
    logger_.warning(printable(value.name) + " is " +
                    (std::isnan(value.value) ? "NaN" : "infinite") + " at step " +
                    std::to_string(state_.step));
  }

  void update_rates(Clock::time_point now) {
    const RateMeter::Rates rates = rates_.rates(now);
    state_.seconds = std::chrono::duration<double>(now - start_).count();
    state_.steps_per_second = rates.steps_per_second;
    state_.samples_per_second = rates.samples_per_second;
  }

  void write_files(const std::vector<NamedValue>& values, Clock::time_point now) {
    if (events_ && !values.empty()) {
      events_->add_scalars(state_.step, values);
    }
    if (json_) {
      update_rates(now);
      ProgressState state = state_;
      state.values = values;
      (void)json_->append(json_line(state, rank_, unix_seconds()));
    }
  }

  void show(Clock::time_point now) {
    if (!screen_ || now < (screen_->has_bar() ? next_bar_ : next_line_)) {
      return;
    }
    update_rates(now);
    if (screen_->has_bar()) {
      next_bar_ = now + kBetweenBars;
      screen_->draw_bar(bar_text(state_, screen_->n_columns(), screen_->has_colour()));
    } else {
      next_line_ = now + options_.interval;
      print(options_.format == ProgressFormat::kJson ? json_line(state_, rank_, unix_seconds())
                                                     : line_text(state_));
    }
  }

  ProgressOptions options_;
  int rank_;
  base::Logger logger_;
  std::string lines_begin_;
  std::unique_ptr<AppendFile> json_;
  std::optional<EventFile> events_;
  std::unique_ptr<Screen> screen_;
  Clock::time_point start_;
  Clock::time_point next_line_;
  Clock::time_point next_bar_ = {};
  RateMeter rates_;
  ProgressState state_;
  std::vector<std::string> warned_of_;
};

Progress::Progress(int rank, int world_size, const ProgressOptions& options)
    : n_steps_(options.start) {
  check(options);
  if (rank == 0 || options.all_ranks) {
    reporter_ = std::make_unique<Reporter>(rank, world_size, options);
  }
}

Progress::Progress(const ProcessGroup& group, const ProgressOptions& options)
    : Progress(group.rank(), group.world_size(), options) {}

Progress::Progress(const ProgressOptions& options) : Progress(0, 1, options) {}

Progress::~Progress() {
  finish();
}

void Progress::step(const std::vector<NamedValue>& values, std::int64_t n_samples) {
  if (n_samples < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "Progress.step(): " + std::to_string(n_samples) +
                    " samples; there can't be fewer than none");
  }
  ++n_steps_;
  if (reporter_) {
    reporter_->step(n_steps_, values, n_samples);
  }
}

void Progress::record(const std::vector<NamedValue>& values) {
  if (reporter_) {
    reporter_->record(n_steps_, values);
  }
}

void Progress::set_title(const std::string& title) {
  if (reporter_) {
    reporter_->set_title(title);
  }
}

void Progress::print(std::string_view line) {
  if (reporter_) {
    reporter_->print(line);
  }
}

void Progress::clear() {
  if (reporter_) {
    reporter_->clear();
  }
}

std::int64_t Progress::n_steps() const {
  return n_steps_;
}

void Progress::finish() {
  if (const std::unique_ptr<Reporter> reporter = std::move(reporter_)) {
    reporter->finish(n_steps_);
  }
}

namespace {

EventTime now_at(std::int64_t step) {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return {.unix_seconds = std::chrono::duration<double>(since_epoch).count(), .step = step};
}

void create_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw system_error("can't create the folder " + folder + " for TensorBoard", error.value());
  }
}

// The name begins with the time, because TensorBoard reads the files of a folder in alphabetical
// order.
std::unique_ptr<AppendFile> create_file(const std::string& folder) {
  constexpr int kMostOfOneSecond = 1000;
  const auto seconds = static_cast<std::int64_t>(now_at(0).unix_seconds);
  const std::string start = fmt::format(
      "{}/events.out.tfevents.{:010}.{}.{}", folder, seconds, rendezvous::host_name(), ::getpid());
  for (int i = 0;; ++i) {
    const std::string path = fmt::format("{}.{:03}", start, i);
    std::error_code ignored;
    if (i < kMostOfOneSecond && std::filesystem::exists(path, ignored)) {
      continue;
    }
    return std::make_unique<AppendFile>(path, AppendFile::Open::kNew, base::Logger("event file"));
  }
}

}  // namespace

EventFile::EventFile(const std::string& folder, std::optional<std::int64_t> resumed_at) {
  create_folder(folder);
  file_ = create_file(folder);
  std::string start = version_record(now_at(0));
  if (resumed_at) {
    start += restart_record(now_at(*resumed_at + 1));
  }
  if (const int error_number = file_->append(start); error_number != 0) {
    (void)::unlink(path().c_str());
    throw system_error("can't write to " + path(), error_number);
  }
}

EventFile::~EventFile() = default;
EventFile::EventFile(EventFile&&) noexcept = default;
EventFile& EventFile::operator=(EventFile&&) noexcept = default;

void EventFile::add_scalars(std::int64_t step, std::span<const NamedValue> values) {
  (void)file_->append(scalars_record(now_at(step), values));
}

void EventFile::add_text(std::int64_t step, std::string_view name, std::string_view text) {
  (void)file_->append(text_record(now_at(step), name, text));
}

const std::string& EventFile::path() const {
  return file_->path();
}

}  // namespace unisono::report
