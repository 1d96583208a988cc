#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "core_store.h"

namespace unisono::python {

/// Options as in PyTorch's TCPStore.
struct StoreOptions {
  std::string host;
  int port = 0;  ///< 0: the server chooses a free port.
  std::optional<int> world_size = {};
  bool is_master = false;  ///< This process serves the store, by threads of the process.
  std::chrono::milliseconds timeout{};
  /// The master waits until as many clients as the world size, itself included, are connected.
  bool wait_for_workers = true;
  std::optional<std::string> secret = {};  ///< Default: the job's secret.
  std::optional<bool> tls = {};            ///< Default: UNISONO_TLS.
};

/// Connects to a store, after starting the server if `is_master`.
///
/// Throws Error: kPeerLost if no server accepts connections before the timeout, kTimeout if the
/// workers do not arrive, kInvalidArgument for invalid options, and the errors of the constructors
/// of TcpStore and TcpStoreServer.
[[nodiscard]] StoreAccess open_store(const StoreOptions& options);

}  // namespace unisono::python
