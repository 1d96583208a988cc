#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

namespace unisono::launch {

/// The last lines of a rank, for the report of its failure.
class Tail {
 public:
  void add(std::string_view line) {
    while (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    // Of a line that overwrites itself, what was to be seen last.
    const std::size_t last_return = line.rfind('\r');
    if (last_return != std::string_view::npos) {
      line.remove_prefix(last_return + 1);
    }
    if (lines_.size() == kMaxLines) {
      lines_.pop_front();
    }
    lines_.emplace_back(line.substr(0, kMaxLineBytes));
  }

  void clear() { lines_.clear(); }

  [[nodiscard]] const std::deque<std::string>& lines() const { return lines_; }

 private:
  static constexpr std::size_t kMaxLines = 20;
  static constexpr std::size_t kMaxLineBytes = 1000;

  std::deque<std::string> lines_;
};

}  // namespace unisono::launch
