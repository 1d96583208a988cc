#pragma once

#include <cstddef>

namespace unisono::store {

/// What each key and value of a request counts for besides its bytes: many empty ones cost memory,
/// too.
inline constexpr std::size_t kStringOverhead = 32;

/// What a client may leave to be set when it ends. It comes on top of what the store may hold.
inline constexpr std::size_t kMaxLastWordBytes = 4096;

/// What a store takes. Calls beyond throw Error(kInvalidArgument). A server refuses a request
/// beyond, or closes the connection, alone, where it can't say so in the place of an answer.
struct Limits {
  std::size_t max_key_bytes = std::size_t{8} << 10;
  std::size_t max_value_bytes = std::size_t{8} << 20;  ///< Also of what appends add up to.
  std::size_t max_count = 131'072;                     ///< Keys in one request.
  std::size_t max_request_bytes = std::size_t{64} << 20;
  std::size_t max_unread_bytes = std::size_t{256} << 20;  ///< Replies that a client has not read.
  std::size_t max_store_bytes = std::size_t{4} << 30;     ///< Everything that is kept.
  std::size_t max_watches = 4'096;                        ///< Keys that one connection watches.
  std::size_t max_connections = 65'536;
};

}  // namespace unisono::store
