#include "unisono/launch/output/worker_output.h"

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/launch/output/console.h"
#include "unisono/launch/output/line_splitter.h"
#include "unisono/launch/output/pty.h"
#include "unisono/launch/output/tail.h"

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
  // Only our end: the rank's own flags are the rank's business.
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
  // A terminal whose other side is closed says EIO instead of end of file.
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
  const std::size_t frames = part.text.rfind('\r') + 1;  // 0 where there is none.
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

}  // namespace unisono::launch
