#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "unisono/store/limits.h"
#include "unisono/store/store.h"

namespace unisono::store {

// What every store refuses before it does anything: each throws Error(kInvalidArgument) that says
// what was too large, how large it is, and what is allowed.

/// A key, and a value of so many bytes for it. A key counts with the character that the protocol
/// puts before it, so that all stores take the same.
void check_sizes(const Limits& limits, const std::string& key, std::size_t n_value_bytes);

/// The keys of one request.
void check_sizes(const Limits& limits, std::span<const std::string> keys);

/// The keys and values of one request.
void check_sizes(const Limits& limits, std::span<const Store::KeyValue> pairs);

}  // namespace unisono::store
