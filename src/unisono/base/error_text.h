#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <string_view>

#include "unisono/base/config.h"

namespace unisono {

/// Returns the text of an exception for users: what() without the stack trace that LibTorch appends
/// to each of its exceptions. The 20 and more lines of addresses hide the message, so that a
/// terminal or a report does not show the message. With UNISONO_LOG=debug the text is complete.
///
/// For the end of a program:
///
///     } catch (const std::exception& error) {
///       std::fprintf(stderr, "train: %s\n", unisono::error_text(error).c_str());
///     }
///
/// Thread-safe. Recognizes the stack trace by the first line and therefore needs no LibTorch.
/// Handles a text that embeds the text of another exception.
[[nodiscard]] inline std::string error_text(
    const std::exception& error, const Environment& environment = process_environment()) {
  constexpr std::string_view kStack = "\nException raised from ";
  constexpr std::string_view kFrame = "\nframe #";
  const std::string_view whole = error.what();
  const std::size_t begin = whole.find(kStack);
  if (begin == std::string_view::npos || environment("UNISONO_LOG") == "debug") {
    return std::string(whole);
  }
  std::size_t end = whole.find('\n', begin + 1);
  while (end != std::string_view::npos && whole.substr(end).starts_with(kFrame)) {
    end = whole.find('\n', end + 1);
  }
  std::string text(whole.substr(0, begin));
  text += end == std::string_view::npos ? "" : whole.substr(end);
  while (text.ends_with('\n')) {
    text.pop_back();
  }
  return text;
}

}  // namespace unisono
