#include "unisono/launch/output/console.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "unisono/launch/output/line_splitter.h"
#include "unisono/launch/output/sink.h"

namespace unisono::launch {
namespace {

std::string_view not_shown(const Line& line, std::uint64_t shown_until) {
  const std::uint64_t shown = shown_until > line.offset ? shown_until - line.offset : 0;
  return line.text.substr(std::min<std::size_t>(shown, line.text.size()));
}

// What an interrupted line looked like on the terminal.
std::string_view last_frame(std::string_view text) {
  const std::size_t last_text = text.find_last_not_of('\r');
  const std::size_t last_return =
      last_text == std::string_view::npos ? last_text : text.rfind('\r', last_text);
  return last_return == std::string_view::npos ? text : text.substr(last_return);
}

}  // namespace

void Console::put_line(Source source, std::string_view prefix, const Line& line) {
  const bool is_open = open_ && open_->source == source;
  if (!is_open) {
    break_row(source.stream);
  }
  Sink& target = select(source.stream);
  if (is_open) {
    target.append(not_shown(line, open_->shown_until));
    open_.reset();
  } else {
    target.append(prefix);
    target.append(line.text);
  }
  target.append(line.is_cut ? " [unisono: line cut here]\n" : "\n");
}

void Console::put_partial(Source source, const Line& partial) {
  if (partial.text.empty()) {
    return;
  }
  const bool is_open = open_ && open_->source == source;
  if (!is_open) {
    break_row(source.stream);
  }
  select(source.stream)
      .append(is_open ? not_shown(partial, open_->shown_until) : last_frame(partial.text));
  open_ = {source, partial.offset + partial.text.size()};
}

void Console::put_raw(Source source, std::string_view bytes) {
  if (bytes.empty()) {
    return;
  }
  select(source.stream).append(bytes);
  open_.reset();
  if (bytes.back() != '\n') {
    open_ = {source, 0};
  }
}

void Console::put_whole_line(Stream stream, std::string_view text) {
  break_row(stream);
  select(stream).append(text);
}

void Console::put_message(std::string_view text) {
  put_whole_line(Stream::kErr, text);
}

// stdout and stderr may be one terminal or file: what came first has to be there first.
Sink& Console::select(Stream stream) {
  Sink& other = stream == Stream::kOut ? err_ : out_;
  other.flush();
  return stream == Stream::kOut ? out_ : err_;
}

void Console::break_row(Stream target) {
  if (!open_) {
    return;
  }
  const Stream open_stream = open_->source.stream;
  if (open_stream == target || (out_.is_terminal() && err_.is_terminal())) {
    select(open_stream).append("\n");
    open_.reset();
  }
}

}  // namespace unisono::launch
