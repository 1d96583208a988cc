#include "unisono/base/error.h"

#include <fmt/format.h>

#include <cstddef>
#include <string_view>
#include <system_error>

#include "unisono/base/config.h"

namespace unisono {

const char* to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "InvalidArgument";
    case ErrorCode::kNotFound:
      return "NotFound";
    case ErrorCode::kSystem:
      return "System";
    case ErrorCode::kTimeout:
      return "Timeout";
    case ErrorCode::kPeerLost:
      return "PeerLost";
    case ErrorCode::kMismatch:
      return "Mismatch";
    case ErrorCode::kUnauthenticated:
      return "Unauthenticated";
    case ErrorCode::kIncompatible:
      return "Incompatible";
    case ErrorCode::kCorruptData:
      return "CorruptData";
    case ErrorCode::kClosed:
      return "Closed";
    case ErrorCode::kInterrupted:
      return "Interrupted";
    case ErrorCode::kInternal:
      return "Internal";
  }
  return "Unknown";
}

Error system_error(const std::string& what, int error_number) {
  return {
      ErrorCode::kSystem,
      fmt::format(
          "{}: {} (errno {})", what, std::generic_category().message(error_number), error_number)};
}

std::string error_text(const std::exception& error) {
  constexpr std::string_view kStack = "\nException raised from ";
  constexpr std::string_view kFrame = "\nframe #";
  const std::string_view whole = error.what();
  const std::size_t begin = whole.find(kStack);
  if (begin == std::string_view::npos || process_environment()("UNISONO_LOG") == "debug") {
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

namespace detail {

void check_failed(const char* condition, const char* file, int line, const std::string& message) {
  throw Error(
      ErrorCode::kInternal,
      fmt::format("internal error: {} ({} is false at {}:{})", message, condition, file, line));
}

}  // namespace detail
}  // namespace unisono
