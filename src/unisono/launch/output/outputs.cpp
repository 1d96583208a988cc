#include "unisono/launch/output/outputs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>  // IWYU pragma: keep
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "unisono/base/error.h"

namespace unisono::launch {
namespace {

constexpr std::size_t kMaxLineBytes = 65536;
constexpr std::chrono::seconds kMaxPartAge{1};

std::uint64_t end_of(const Line& part) {
  return part.offset + part.text.size();
}

std::string_view behind(const Line& line, std::uint64_t place) {
  const std::uint64_t n_before = place > line.offset ? place - line.offset : 0;
  return line.text.substr(std::min<std::size_t>(n_before, line.text.size()));
}

}  // namespace

WorkerOutput::WorkerOutput(
    Source source, OutputStyle style, Console& console, Tail& tail, OnError on_error)
    : source_(source),
      style_(std::move(style)),
      console_(console),
      tail_(tail),
      on_error_(std::move(on_error)),
      lines_(kMaxLineBytes) {}

void WorkerOutput::log_to(const std::string& path, bool appends) {
  constexpr int kMode = 0666;
  log_path_ = path;
  log_ = Fd(
      ::open(path.c_str(), O_WRONLY | O_CREAT | (appends ? O_APPEND : O_TRUNC) | O_CLOEXEC, kMode));
  if (!log_.is_open()) {
    throw system_error("cannot create the log file " + path, errno);
  }
}

Fd WorkerOutput::open(int terminal_fd) {
  Fd write_end;
  at_end_ = false;
  if (style_.is_interactive) {
    Pty pty = open_pty(terminal_fd);
    read_end_ = std::move(pty.master);
    write_end = std::move(pty.slave);
  } else {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
      throw system_error("cannot make a pipe for a rank's output", errno);
    }
    read_end_ = Fd(ends[0]);
    write_end = Fd(ends[1]);
  }
  // Only the read end becomes non-blocking: the rank itself sets the flags of the write end.
  ::fcntl(read_end_.get(), F_SETFL, O_RDONLY | O_NONBLOCK);
  return write_end;
}

bool WorkerOutput::read_some() {
  std::array<char, kMaxLineBytes> buffer;
  const ssize_t n_bytes = ::read(read_end_.get(), buffer.data(), buffer.size());
  if (n_bytes > 0) {
    take(std::string_view(buffer.data(), static_cast<std::size_t>(n_bytes)));
    return true;
  }
  // A terminal reports EIO instead of the end of the file once the other side is closed.
  at_end_ = n_bytes == 0 || (errno != EAGAIN && errno != EINTR);
  return false;
}

void WorkerOutput::take(std::string_view bytes) {
  if (log_.is_open()) {
    write_log(bytes);
  }
  if (style_.is_shown && style_.is_raw) {
    console_.put_raw(source_, bytes);
  }
  lines_.feed(bytes, [this](const Line& line) { take_line(line); });
  if (style_.is_shown && !style_.is_raw) {
    take_part();
  }
}

void WorkerOutput::take_part() {
  const Line part = lines_.partial();
  if (style_.is_interactive) {
    console_.put_partial(source_, style_.prefix, part);
    return;
  }
  const std::size_t frames = part.text.rfind('\r') + 1;  // 0 without a carriage return.
  const Line whole_frames{part.text.substr(0, frames), part.offset, false};
  if (!style_.on_line && end_of(whole_frames) > passed_until_ && console_.has_row_for(source_)) {
    console_.put_partial(source_, style_.prefix, whole_frames);
    mark_passed(whole_frames);
  }
  if (end_of(part) <= passed_until_) {
    part_deadline_ = Deadline::never();
  } else if (part_deadline_.is_never()) {
    part_deadline_ = Deadline::after(kMaxPartAge);
  }
}

void WorkerOutput::pass_on_part() {
  const Line part = lines_.partial();
  if (!style_.on_line) {
    console_.put_partial(source_, style_.prefix, part);
  } else if (const std::string_view frame = last_frame(behind(part, passed_until_));
             !frame.empty()) {
    style_.on_line(source_, frame);
  }
  mark_passed(part);
}

void WorkerOutput::mark_passed(const Line& part) {
  passed_until_ = end_of(part);
  part_deadline_ = Deadline::never();
}

void WorkerOutput::take_line(const Line& line) {
  tail_.add(line.text);
  const std::string_view rest = behind(line, passed_until_);
  const bool is_passed = passed_until_ > line.offset && last_frame(rest).empty();
  part_deadline_ = Deadline::never();
  if (style_.is_shown && style_.on_line) {
    if (!is_passed) {
      style_.on_line(source_, line.is_cut ? std::string(rest).append(kCutMark) : rest);
    }
  } else if (style_.is_shown && !style_.is_raw) {
    console_.put_line(source_, style_.prefix, line);
  }
}

void WorkerOutput::write_log(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n_written = ::write(log_.get(), bytes.data(), bytes.size());
    if (n_written >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n_written));
    } else if (errno != EINTR) {
      const int error_number = errno;
      log_.reset();
      on_error_("the log file " + log_path_, error_number);
      return;
    }
  }
}

void WorkerOutput::finish() {
  const Line last = lines_.partial();
  if (!last.text.empty()) {
    take_line(last);
    lines_.clear();
  }
  at_end_ = true;
  read_end_.reset();
}

namespace {

constexpr std::size_t kMaxBacklogBytes = 1 << 20;
// Reads more than a pipe holds. Text that still arrives then comes from a process outside this job.
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
    collapser_.emplace(
        static_cast<std::size_t>(options.n_workers),
        [this](std::span<const int> ranks, OutputStream stream, std::string_view text) {
          put_line(ranks, stream, text);
        });
  }
  for (int local_rank = 0; local_rank < options.n_workers; ++local_rank) {
    Worker& worker = workers_.emplace_back();
    add_stream(worker, local_rank, OutputStream::kOut);
    add_stream(worker, local_rank, OutputStream::kErr);
  }
}

Outputs::~Outputs() {
  for (const int fd : watched_) {
    loop_.remove(fd);
  }
}

void Outputs::add_stream(Worker& worker, int local_rank, OutputStream stream) {
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
        const std::string path =
            fmt::format("{}/rank-{}.{}",
                        options_.log_dir,
                        rank,
                        output->stream() == OutputStream::kOut ? "out" : "err");
        output->log_to(path, !log_files_.insert(path).second);
      }
    }
    ++rank;
  }
}

// The launcher of another host sends whole lines only, because the receiver mixes the output of
// several hosts.
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

void Outputs::put_line(std::span<const int> ranks, OutputStream stream, std::string_view text) {
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
  throttle(OutputStream::kOut, out_paused_);
  throttle(OutputStream::kErr, err_paused_);
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

// Stops reading while the reader of our output is slow. The full pipe then makes the rank wait, as
// it would without the launcher.
void Outputs::throttle(OutputStream stream, bool& is_paused) {
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
