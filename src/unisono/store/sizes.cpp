#include "unisono/store/sizes.h"

#include <fmt/format.h>

#include <cstddef>
#include <span>
#include <string>

#include "unisono/base/error.h"
#include "unisono/base/utf8.h"
#include "unisono/store/limits.h"
#include "unisono/store/protocol.h"
#include "unisono/store/store.h"

namespace unisono::store {
namespace {

void check_count(const Limits& limits, std::size_t n_keys) {
  if (n_keys > limits.max_count) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "store: {} keys in one request; at most {} are allowed", n_keys, limits.max_count));
  }
}

// As the server counts it.
std::size_t n_key_bytes(const std::string& key) {
  return kKeyPrefix.size() + key.size() + kStringOverhead;
}

void check_request(const Limits& limits, std::size_t n_bytes) {
  if (n_bytes > limits.max_request_bytes) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("store: a request of {} bytes; at most {} are allowed, so use several",
                            n_bytes,
                            limits.max_request_bytes));
  }
}

}  // namespace

void check_sizes(const Limits& limits, const std::string& key, std::size_t n_value_bytes) {
  if (key.size() + kKeyPrefix.size() > limits.max_key_bytes) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("store: a key of {} bytes (\"{}...\"); at most {} are allowed",
                            key.size(),
                            as_utf8(utf8_prefix(key, 40)),
                            limits.max_key_bytes - kKeyPrefix.size()));
  }
  if (n_value_bytes > limits.max_value_bytes) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("store: the value for \"{}\" has {} bytes; at most {} are allowed",
                            key,
                            n_value_bytes,
                            limits.max_value_bytes));
  }
}

void check_sizes(const Limits& limits, std::span<const std::string> keys) {
  check_count(limits, keys.size());
  std::size_t n_bytes = 0;
  for (const std::string& key : keys) {
    check_sizes(limits, key, 0);
    n_bytes += n_key_bytes(key);
  }
  check_request(limits, n_bytes);
}

void check_sizes(const Limits& limits, std::span<const Store::KeyValue> pairs) {
  check_count(limits, pairs.size());
  std::size_t n_bytes = 0;
  for (const auto& [key, value] : pairs) {
    check_sizes(limits, key, value.size());
    n_bytes += n_key_bytes(key) + value.size() + kStringOverhead;
  }
  check_request(limits, n_bytes);
}

}  // namespace unisono::store
