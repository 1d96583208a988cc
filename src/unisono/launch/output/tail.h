#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

#include "unisono/launch/output/line_splitter.h"

namespace unisono::launch {

/// The last lines of a rank, for the report of its failure.
class Tail {
 public:
  void add(std::string_view line) {
    line = last_frame(line);
    // LibTorch lists the addresses of the stack behind the message of an exception.
    if (line.starts_with("frame #") || line.starts_with("Exception raised from ")) {
      return;
    }
    if (lines_.size() == kMaxLines) {
      lines_.pop_front();
    }
    lines_.emplace_back(line.substr(0, kMaxLineBytes));
  }

  void clear() { lines_.clear(); }

  [[nodiscard]] const std::deque<std::string>& lines() const { return lines_; }

  /// The line that says most of those, or nothing: the last one that is neither blank nor indented,
  /// such as the exception below a traceback and the signal above a stack; else the last one.
  [[nodiscard]] std::deque<std::string> headline() const {
    for (auto line = lines_.rbegin(); line != lines_.rend(); ++line) {
      if (!line->empty() && line->front() != ' ' && line->front() != '\t') {
        return {*line};
      }
    }
    return lines_.empty() ? lines_ : std::deque{lines_.back()};
  }

 private:
  static constexpr std::size_t kMaxLines = 20;
  static constexpr std::size_t kMaxLineBytes = 1000;

  std::deque<std::string> lines_;
};

}  // namespace unisono::launch
