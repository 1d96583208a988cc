#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"

namespace unisono::store {

// What a store throws when a wait that began at `start` was in vain. `store` says which it is,
// e.g. "store 10.0.0.1:29500".

/// Names those of `keys` that `is_there` does not know, as far as a message has room for them.
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
