#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace unisono::launch {

/// A line of output, without its newline.
struct Line {
  std::string_view text;     ///< Valid until the splitter is fed again.
  std::uint64_t offset = 0;  ///< Place of text[0] in the stream.
  bool is_cut = false;       ///< The limit ended it, not a newline.
};

/// Ends a line that was cut.
inline constexpr std::string_view kCutMark = " [unisono: line cut here]";

/// Returns the last state of a line that overwrites itself, without carriage returns.
[[nodiscard]] std::string_view last_frame(std::string_view text);

/// Cuts a stream of bytes into lines.
///
/// A line that grows beyond `max_bytes` is handed out cut; one that overwrites itself by carriage
/// returns (a progress bar) instead forgets all that came before the last of them.
class LineSplitter {
 public:
  explicit LineSplitter(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  /// Calls `on_line` for each line that `bytes` completes.
  void feed(std::string_view bytes, const std::function<void(const Line&)>& on_line);

  /// What came since the last line.
  [[nodiscard]] Line partial() const { return {pending_, offset_, false}; }

  /// Forgets the partial line.
  void clear();

 private:
  void emit(bool is_cut, const std::function<void(const Line&)>& on_line);
  void make_room(const std::function<void(const Line&)>& on_line);

  std::size_t max_bytes_;
  std::string pending_;
  std::uint64_t offset_ = 0;
};

}  // namespace unisono::launch
