#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "core_store.h"

namespace unisono::python {

/// As in PyTorch's TCPStore.
struct StoreOptions {
  std::string host;
  int port = 0;  ///< 0: who serves takes a free one.
  std::optional<int> world_size = {};
  bool is_master = false;  ///< Serves the store, in threads of this process.
  std::chrono::milliseconds timeout{};
  /// The master returns when so many as the world size, itself included, are connected.
  bool wait_for_workers = true;
  std::optional<std::string> secret = {};  ///< Default: as the job's is found.
  std::optional<bool> tls = {};            ///< Default: UNISONO_TLS.
};

/// Connects to a store, or serves it and connects.
///
/// Throws Error: kPeerLost when nobody listens there in time, kTimeout when the workers do not
/// come, kInvalidArgument, and as TcpStore's and TcpStoreServer's constructors do.
[[nodiscard]] StoreAccess open_store(const StoreOptions& options);

}  // namespace unisono::python
