#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "unisono/base/error.h"

namespace unisono::data::testing {

/// An IDX file's bytes: header, then `elements` as they are.
[[nodiscard]] std::string idx_bytes(std::uint8_t type_code,
                                    const std::vector<std::uint32_t>& dims,
                                    const std::string& elements);

/// `bytes` as one gzip member.
[[nodiscard]] std::string gzip(const std::string& bytes);

/// Bytes 0, 7, 14, ... modulo 251.
[[nodiscard]] std::string some_bytes(std::size_t n_bytes);

struct CaughtError {
  ErrorCode code;
  std::string message;
};

/// The Error that `action` throws; one that no expectation knows when it throws none.
template <class Action>
[[nodiscard]] CaughtError error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return {.code = error.code(), .message = error.what()};
  }
  return {.code = ErrorCode::kInternal, .message = "(nothing was thrown)"};
}

}  // namespace unisono::data::testing
