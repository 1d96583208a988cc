#include "unisono/launch/output/console.h"

#include <fcntl.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>

#include <algorithm>
#include <cerrno>

#include "unisono/base/error.h"

namespace unisono::launch {

Pty open_pty(int like_fd) {
  int master = -1;
  int slave = -1;
  termios raw{};
  ::cfmakeraw(&raw);
  raw.c_cflag |= CREAD;
  if (::openpty(&master, &slave, nullptr, &raw, nullptr) != 0) {
    throw system_error("cannot open a terminal for a rank's output", errno);
  }
  Pty pty{.master = Fd(master), .slave = Fd(slave)};
  ::fcntl(master, F_SETFD, FD_CLOEXEC);
  ::fcntl(slave, F_SETFD, FD_CLOEXEC);
  copy_size(like_fd, master);
  return pty;
}

void copy_size(int like_fd, int master) {
  winsize size{};
  if (::ioctl(like_fd, TIOCGWINSZ, &size) == 0) {
    ::ioctl(master, TIOCSWINSZ, &size);
  }
}

namespace {

std::string_view not_shown(const Line& line, std::uint64_t shown_until) {
  const std::uint64_t shown = shown_until > line.offset ? shown_until - line.offset : 0;
  return line.text.substr(std::min<std::size_t>(shown, line.text.size()));
}

// Returns the part of an interrupted line that was visible on the terminal, with the carriage
// returns around the text.
std::string_view last_row(std::string_view text) {
  const std::size_t last_text = text.find_last_not_of('\r');
  const std::size_t last_return =
      last_text == std::string_view::npos ? last_text : text.rfind('\r', last_text);
  return last_return == std::string_view::npos ? text : text.substr(last_return);
}

}  // namespace

Console::Console(Sink& out, Sink& err)
    : out_(out),
      err_(err),
      is_one_place_((out.is_terminal() && err.is_terminal()) ||
                    (!out.place().empty() && out.place() == err.place())) {}

std::size_t Console::row_of(OutputStream stream) const {
  return stream == OutputStream::kOut || is_one_place_ ? 0 : 1;
}

bool Console::has_row_for(Source source) const {
  const std::optional<Row>& row = rows_.at(row_of(source.stream));
  return !row || row->source == source;
}

void Console::put_line(Source source, std::string_view prefix, const Line& line) {
  std::optional<Row>& row = rows_.at(row_of(source.stream));
  const bool is_open = row && row->source == source;
  if (!is_open) {
    break_row(source.stream);
  }
  const bool was_interrupted = interrupted_.erase(source) > 0;
  Sink& target = select(source.stream);
  if (is_open) {
    target.append(not_shown(line, row->shown_until));
    row.reset();
  } else {
    target.append(prefix);
    target.append(was_interrupted ? last_row(line.text) : line.text);
  }
  target.append(line.is_cut ? kCutMark : "");
  target.append("\n");
}

void Console::put_partial(Source source, std::string_view prefix, const Line& partial) {
  if (partial.text.empty()) {
    return;
  }
  std::optional<Row>& row = rows_.at(row_of(source.stream));
  const bool is_open = row && row->source == source;
  if (!is_open) {
    break_row(source.stream);
  }
  Sink& target = select(source.stream);
  if (is_open) {
    target.append(not_shown(partial, row->shown_until));
  } else {
    target.append(prefix);
    target.append(interrupted_.contains(source) ? last_row(partial.text) : partial.text);
  }
  row = {source, partial.offset + partial.text.size()};
}

void Console::put_raw(Source source, std::string_view bytes) {
  if (bytes.empty()) {
    return;
  }
  select(source.stream).append(bytes);
  std::optional<Row>& row = rows_.at(row_of(source.stream));
  row.reset();
  if (bytes.back() != '\n') {
    row = {source, 0};
  }
}

void Console::put_whole_line(OutputStream stream, std::string_view text) {
  break_row(stream);
  select(stream).append(text);
}

void Console::put_message(std::string_view text) {
  put_whole_line(OutputStream::kErr, text);
}

// stdout and stderr may be the same terminal or file, so text that arrived first is written first.
Sink& Console::select(OutputStream stream) {
  Sink& other = stream == OutputStream::kOut ? err_ : out_;
  other.flush();
  return stream == OutputStream::kOut ? out_ : err_;
}

void Console::break_row(OutputStream target) {
  std::optional<Row>& row = rows_.at(row_of(target));
  if (row) {
    select(row->source.stream).append("\n");
    interrupted_.insert(row->source);
    row.reset();
  }
}

}  // namespace unisono::launch
