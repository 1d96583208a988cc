#pragma once

#include <string>

#include <gmock/gmock.h>

#include "unisono/base/error.h"

namespace unisono::test {

/// Of a function: it throws an Error of this code, whose message contains each of `parts`.
template <class... Parts>
[[nodiscard]] auto throws_error(ErrorCode code, const Parts&... parts) {
  using ::testing::AllOf;
  using ::testing::HasSubstr;
  using ::testing::Property;
  return ::testing::Throws<Error>(
      AllOf(Property(&Error::code, code),
            Property(&Error::what, AllOf(HasSubstr(std::string(parts))...))));
}

}  // namespace unisono::test
