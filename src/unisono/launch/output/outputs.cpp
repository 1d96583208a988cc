#include "unisono/launch/output/outputs.h"

#include <fmt/format.h>
#include <sys/epoll.h>  // IWYU pragma: keep
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/launch/output/console.h"
#include "unisono/launch/output/line_format.h"
#include "unisono/launch/output/pty.h"
#include "unisono/launch/output/stream_selection.h"
#include "unisono/launch/output/worker_output.h"
#include "unisono/net/event_loop.h"

namespace unisono::launch {
namespace {

constexpr std::size_t kMaxBacklogBytes = 1 << 20;
// More than a pipe holds: what still comes then is from a process outside this job.
constexpr int kMaxLastReads = 256;

}  // namespace

Outputs::Outputs(net::EventLoop& loop,
                 const OutputOptions& options,
                 Sinks sinks,
                 WorkerOutput::OnError on_error)
    : loop_(loop),
      options_(options),
      on_error_(std::move(on_error)),
      sinks_(std::move(sinks)),
      console_(*sinks_.out, *sinks_.err) {
  if (!options.log_dir.empty()) {
    std::error_code error;
    std::filesystem::create_directories(options.log_dir, error);
    if (error) {
      throw system_error("cannot create the folder for log files " + options.log_dir,
                         error.value());
    }
  }
  if (options.collapses) {
    collapser_.emplace(static_cast<std::size_t>(options.n_workers),
                       [this](std::span<const int> ranks, Stream stream, std::string_view text) {
                         put_line(ranks, stream, text);
                       });
  }
  for (int local_rank = 0; local_rank < options.n_workers; ++local_rank) {
    Worker& worker = workers_.emplace_back();
    add_stream(worker, local_rank, Stream::kOut);
    add_stream(worker, local_rank, Stream::kErr);
  }
}

Outputs::~Outputs() {
  for (const int fd : watched_) {
    loop_.remove(fd);
  }
}

void Outputs::add_stream(Worker& worker, int local_rank, Stream stream) {
  const Source source{local_rank, stream};
  const bool shown = is_shown(options_.targets, source);
  const OutputStyle style{
      .is_shown = shown,
      .is_raw = options_.n_workers == 1 && !options_.prefix && has_plain_lines(),
      .is_interactive = shown && local_rank == 0 && !options_.prefix && has_plain_lines() &&
                        sink(stream).is_terminal(),
      .on_line = has_plain_lines()
                     ? nullptr
                     : WorkerOutput::OnLine(
                           [this](Source from, std::string_view text) { take_line(from, text); })};
  worker.streams.push_back(
      std::make_unique<WorkerOutput>(source, style, console_, worker.tail, on_error_));
}

void Outputs::name_ranks(int first_rank) {
  if (first_rank_ == first_rank) {
    return;
  }
  first_rank_ = first_rank;
  int rank = first_rank;
  for (const Worker& worker : workers_) {
    for (const auto& output : worker.streams) {
      if (options_.prefix) {
        output->set_prefix(rank_prefix(
            options_.format, rank, rank - first_rank, sink(output->stream()).has_colour()));
      }
      if (goes_to_file(options_.targets, output->source())) {
        const std::string path = fmt::format("{}/rank-{}.{}",
                                             options_.log_dir,
                                             rank,
                                             output->stream() == Stream::kOut ? "out" : "err");
        output->log_to(path, !log_files_.insert(path).second);
      }
    }
    ++rank;
  }
}

// Another host's launcher mixes what it receives with that of others, so it gets whole lines only.
bool Outputs::has_plain_lines() const {
  return !options_.collapses && !options_.format.is_json && options_.format.host.empty();
}

void Outputs::take_line(Source source, std::string_view text) {
  const int rank = first_rank_.value_or(0) + source.local_rank;
  if (collapser_) {
    collapser_->add(rank, source.stream, text, Deadline::Clock::now());
  } else {
    put_line(std::span(&rank, 1), source.stream, text);
  }
}

void Outputs::put_line(std::span<const int> ranks, Stream stream, std::string_view text) {
  console_.put_whole_line(
      stream,
      options_.format.is_json
          ? format_json(options_.format, ranks, stream, text)
          : format_collapsed(options_.format, ranks, text, sink(stream).has_colour()));
}

Outputs::Ends Outputs::open(int local_rank) {
  Worker& worker = workers_[static_cast<std::size_t>(local_rank)];
  worker.tail.clear();
  Ends ends{.out = worker.streams[0]->open(STDOUT_FILENO),
            .err = worker.streams[1]->open(STDERR_FILENO)};
  if (!out_paused_) {
    watch(*worker.streams[0]);
  }
  if (!err_paused_) {
    watch(*worker.streams[1]);
  }
  return ends;
}

void Outputs::watch(WorkerOutput& output) {
  loop_.add(
      output.fd(), EPOLLIN, [this, &output](std::uint32_t /*events*/) { on_readable(output); });
  watched_.insert(output.fd());
}

void Outputs::unwatch(const WorkerOutput& output) {
  if (watched_.erase(output.fd()) != 0) {
    loop_.remove(output.fd());
  }
}

void Outputs::on_readable(WorkerOutput& output) {
  output.read_some();
  if (output.at_end()) {
    unwatch(output);
    output.finish();
  }
}

void Outputs::flush() {
  for (const Worker& worker : workers_) {
    for (const auto& output : worker.streams) {
      if (output->part_deadline().has_passed()) {
        output->pass_on_part();
      }
    }
  }
  if (collapser_) {
    collapser_->on_time(Deadline::Clock::now());
  }
  sinks_.out->flush();
  sinks_.err->flush();
  throttle(Stream::kOut, out_paused_);
  throttle(Stream::kErr, err_paused_);
}

Deadline Outputs::deadline() const {
  Deadline next = collapser_ ? collapser_->deadline() : Deadline::never();
  for (const Worker& worker : workers_) {
    for (const auto& output : worker.streams) {
      next = earlier(next, output->part_deadline());
    }
  }
  return next;
}

// A full pipe then makes the rank wait, as it would without us.
void Outputs::throttle(Stream stream, bool& is_paused) {
  const std::size_t backlog = sink(stream).backlog();
  const bool pause = backlog > (is_paused ? kMaxBacklogBytes / 2 : kMaxBacklogBytes);
  if (pause == is_paused) {
    return;
  }
  is_paused = pause;
  for (const Worker& worker : workers_) {
    for (const auto& output : worker.streams) {
      if (output->stream() != stream || output->fd() < 0) {
        continue;
      }
      if (pause) {
        unwatch(*output);
      } else {
        watch(*output);
      }
    }
  }
}

void Outputs::drain() {
  for (const Worker& worker : workers_) {
    for (const auto& output : worker.streams) {
      if (output->fd() < 0) {
        continue;
      }
      unwatch(*output);
      for (int i = 0; i < kMaxLastReads && output->read_some(); ++i) {
      }
      output->finish();
    }
  }
  if (collapser_) {
    collapser_->flush();
  }
}

void Outputs::resize() {
  const Worker& first = workers_.front();
  copy_size(STDOUT_FILENO, first.streams[0]->fd());
  copy_size(STDERR_FILENO, first.streams[1]->fd());
}

void Outputs::message(std::string_view text) {
  console_.put_message(format_message(options_.format, text));
}

std::deque<std::string> Outputs::last_lines(int local_rank) const {
  const Worker& worker = workers_[static_cast<std::size_t>(local_rank)];
  const bool are_shown = std::ranges::all_of(worker.streams, [this](const auto& output) {
    return is_shown(options_.targets, output->source());
  });
  return are_shown ? worker.tail.headline() : worker.tail.lines();
}

}  // namespace unisono::launch
