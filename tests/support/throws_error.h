#pragma once

#include <string>

#include <gmock/gmock.h>

#include "unisono/base/error.h"

namespace unisono::test {

/// Matches a function that throws an Error of this code whose message contains each of `parts`.
template <class... Parts>
[[nodiscard]] auto throws_error(ErrorCode code, const Parts&... parts) {
  using ::testing::AllOf;
  using ::testing::HasSubstr;
  using ::testing::Property;
  return ::testing::Throws<Error>(
      AllOf(Property(&Error::code, code),
            Property(&Error::what, AllOf(HasSubstr(std::string(parts))...))));
}

/// The code and message of a caught Error.
struct CaughtError {
  ErrorCode code;
  std::string message;
};

/// Returns the Error that `action` throws, or "(nothing was thrown)" if the action returns.
template <class Action>
[[nodiscard]] CaughtError error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return {.code = error.code(), .message = error.what()};
  }
  return {.code = ErrorCode::kInternal, .message = "(nothing was thrown)"};
}

}  // namespace unisono::test
