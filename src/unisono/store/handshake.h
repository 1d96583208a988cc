#pragma once

#include <string>

#include "unisono/base/deadline.h"
#include "unisono/store/store_channel.h"
#include "unisono/store/tcp_store.h"

namespace unisono::store {

/// A channel to a store that has let this client in.
struct Handshake {
  StoreChannel channel;
  bool is_plain;    ///< The server knows no requests but PyTorch's.
  std::string job;  ///< The name that the server has for its job.
};

/// Connects, trying again while nobody listens there yet, and introduces itself: with the hello if
/// there is a secret, else as PyTorch's clients do.
///
/// Throws as TcpStore's constructor does.
[[nodiscard]] Handshake shake_hands(const TcpStoreOptions& options, Deadline deadline);

}  // namespace unisono::store
