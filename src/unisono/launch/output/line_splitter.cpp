#include "unisono/launch/output/line_splitter.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace unisono::launch {

std::string_view last_frame(std::string_view text) {
  while (text.ends_with('\r')) {
    text.remove_suffix(1);
  }
  return text.substr(text.rfind('\r') + 1);  // All of it where there is none.
}

void LineSplitter::feed(std::string_view bytes, const std::function<void(const Line&)>& on_line) {
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    const std::size_t length = std::min(newline, bytes.size());
    const std::size_t taken = std::min(length, max_bytes_ - pending_.size());
    pending_.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    if (taken < length) {
      make_room(on_line);
    } else if (newline != std::string_view::npos) {
      bytes.remove_prefix(1);
      emit(false, on_line);
    }
  }
}

void LineSplitter::clear() {
  offset_ += pending_.size();
  pending_.clear();
}

void LineSplitter::emit(bool is_cut, const std::function<void(const Line&)>& on_line) {
  on_line({pending_, offset_, is_cut});
  offset_ += pending_.size() + (is_cut ? 0 : 1);
  pending_.clear();
}

void LineSplitter::make_room(const std::function<void(const Line&)>& on_line) {
  const std::size_t last_return = pending_.rfind('\r');
  if (last_return == std::string::npos || last_return == 0) {
    emit(true, on_line);
    return;
  }
  offset_ += last_return;
  pending_.erase(0, last_return);
}

}  // namespace unisono::launch
