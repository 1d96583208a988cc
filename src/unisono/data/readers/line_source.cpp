#include "unisono/data/readers/line_source.h"

#include <fmt/format.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "unisono/base/error.h"
#include "unisono/data/readers/file_source.h"

namespace unisono::data {
namespace {

constexpr std::size_t kLineBufferBytes = std::size_t{1} << 16;

}  // namespace

LineSource::LineSource(const std::string& path)
    : path_(path), source_(path), buffer_(kLineBufferBytes) {}

std::optional<std::string> LineSource::next() {
  std::string line;
  bool has_begun = false;
  while (true) {
    if (unread_.empty()) {
      const std::size_t n_read = source_.read(std::as_writable_bytes(std::span(buffer_)));
      unread_ = std::string_view(buffer_.data(), n_read);
    }
    if (unread_.empty()) {
      break;
    }
    if (!has_begun) {
      has_begun = true;
      ++line_;
    }
    const std::size_t end = unread_.find('\n');
    const std::string_view part = unread_.substr(0, end);
    if (line.size() + part.size() > kMaxLineBytes) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{}: line {}: has more than {} bytes; is it no text file?",
                              path_,
                              line_,
                              kMaxLineBytes));
    }
    line += part;
    unread_.remove_prefix(end == std::string_view::npos ? part.size() : end + 1);
    if (end != std::string_view::npos) {
      break;
    }
  }
  if (!has_begun) {
    return std::nullopt;
  }
  if (line.ends_with('\r')) {
    line.pop_back();
  }
  return line;
}

std::string read_whole_text(const std::string& path) {
  FileSource source(path);
  std::string text;
  std::size_t n_read = 0;
  do {
    const std::size_t start = text.size();
    text.resize(start + kLineBufferBytes);
    n_read = source.read(std::as_writable_bytes(std::span(text).subspan(start)));
    text.resize(start + n_read);
    if (text.size() > kMaxLineBytes) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{}: has more than {} bytes; is it no text?", path, kMaxLineBytes));
    }
  } while (n_read == kLineBufferBytes);
  return text;
}

}  // namespace unisono::data
