#include "unisono/base/error.h"

#include <fmt/format.h>

#include <system_error>

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

namespace detail {

void check_failed(const char* condition, const char* file, int line, const std::string& message) {
  throw Error(
      ErrorCode::kInternal,
      fmt::format("internal error: {} ({} is false at {}:{})", message, condition, file, line));
}

}  // namespace detail
}  // namespace unisono
