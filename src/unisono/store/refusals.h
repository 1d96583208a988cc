#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/store/protocol.h"
#include "unisono/store/store.h"

namespace unisono::store {

// Texts about refused requests, for the client and for the log.

/// The error of a request that the store refused without a change. The store stays usable.
class Refusal : public Error {
 public:
  explicit Refusal(const std::string& reason) : Error(ErrorCode::kInvalidArgument, reason) {}
};

/// Returns the name of the call that sends such requests, e.g. "multi_get".
[[nodiscard]] const char* name_of(Opcode opcode);

/// Returns a key as shown in messages: quoted, without the protocol's prefix, cut if long, and with
/// only printable UTF-8 characters.
[[nodiscard]] std::string shown_key(std::string_view key);

/// Returns the reason why `delta` cannot be added to a key's value.
[[nodiscard]] std::string no_sum(const char* call,
                                 std::string_view key,
                                 const std::string& value,
                                 std::int64_t delta);

// Checks that all stores make before any other work. Each throws Error(kInvalidArgument) with the
// size and the limit.

/// Checks a key and the size of the value. The key is counted with kKeyPrefix, so that all stores
/// accept the same keys.
void check_sizes(const Limits& limits, const std::string& key, std::size_t n_value_bytes);

/// Checks the keys of a request.
void check_sizes(const Limits& limits, std::span<const std::string> keys);

/// Checks the keys and values of a request.
void check_sizes(const Limits& limits, std::span<const Store::KeyValue> pairs);

// Errors of waits that began at `start` and timed out. `store` names the store, e.g. "store
// 10.0.0.1:29500".

/// Names the keys for which `is_there` returns false, as far as there is room in the message.
[[nodiscard]] Error missing_keys(const std::string& store,
                                 const char* call,
                                 std::span<const std::string> keys,
                                 const std::function<bool(const std::string&)>& is_there,
                                 Deadline::Clock::time_point start);

[[nodiscard]] Error incomplete_barrier(const std::string& store,
                                       const std::string& key,
                                       const std::string& n_came,
                                       std::int64_t world_size,
                                       Deadline::Clock::time_point start);

}  // namespace unisono::store
