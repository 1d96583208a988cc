#include "unisono/launch/output/outputs.h"

#include <fmt/format.h>
#include <sys/epoll.h>  // IWYU pragma: keep
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/launch/output/console.h"
#include "unisono/launch/output/pty.h"
#include "unisono/launch/output/stream_selection.h"
#include "unisono/launch/output/worker_output.h"
#include "unisono/net/event_loop.h"

namespace unisono::launch {

std::string label_lines(std::string_view text, const std::string& host) {
  const std::string label =
      host.empty() ? "[unisono run]" : fmt::format("[unisono run on {}]", host);
  std::string lines;
  while (!text.empty()) {
    const std::size_t length = std::min(text.find('\n'), text.size());
    lines += fmt::format("{} {}\n", label, text.substr(0, length));
    text.remove_prefix(std::min(length + 1, text.size()));
  }
  return lines;
}

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
      .is_raw = options_.n_workers == 1 && !options_.prefix,
      .is_interactive = shown && local_rank == 0 && !options_.prefix && sink(stream).is_terminal()};
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
        output->set_prefix(prefix(rank, sink(output->stream()).has_colour()));
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

std::string Outputs::prefix(int rank, bool has_colour) const {
  const std::string name = options_.host.empty() ? fmt::format("[rank {}]", rank)
                                                 : fmt::format("[{}:{}]", options_.host, rank);
  // Cyan, green, yellow, blue, magenta of every terminal.
  constexpr std::array kColours{36, 32, 33, 34, 35};
  return has_colour ? fmt::format("\x1b[{}m{}\x1b[0m ",
                                  kColours[static_cast<std::size_t>(rank) % kColours.size()],
                                  name)
                    : name + " ";
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
  sinks_.out->flush();
  sinks_.err->flush();
  throttle(Stream::kOut, out_paused_);
  throttle(Stream::kErr, err_paused_);
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
}

void Outputs::resize() {
  const Worker& first = workers_.front();
  copy_size(STDOUT_FILENO, first.streams[0]->fd());
  copy_size(STDERR_FILENO, first.streams[1]->fd());
}

void Outputs::message(std::string_view text) {
  console_.put_message(label_lines(text, options_.host));
}

const std::deque<std::string>& Outputs::last_lines(int local_rank) const {
  return workers_[static_cast<std::size_t>(local_rank)].tail.lines();
}

}  // namespace unisono::launch
