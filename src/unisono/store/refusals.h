#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "unisono/base/error.h"
#include "unisono/store/protocol.h"

namespace unisono::store {

// What stores say of requests that they refuse, to the client and in the log.

/// A request that the store refuses, and that changed nothing. The store stays usable.
class Refusal : public Error {
 public:
  explicit Refusal(const std::string& reason) : Error(ErrorCode::kInvalidArgument, reason) {}
};

/// The call that makes such requests: "multi_get".
[[nodiscard]] const char* name_of(Opcode opcode);

/// A key as messages have it: quoted, without what the protocol puts before it, the beginning of a
/// long one, in characters of UTF-8 that can be printed.
[[nodiscard]] std::string shown_key(std::string_view key);

/// Why `delta` can't be added to a key's value.
[[nodiscard]] std::string no_sum(const char* call,
                                 std::string_view key,
                                 const std::string& value,
                                 std::int64_t delta);

}  // namespace unisono::store
