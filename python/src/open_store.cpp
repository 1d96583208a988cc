#include "open_store.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/net/socket.h"
#include "unisono/rendezvous/connect_store.h"
#include "unisono/rendezvous/secret.h"
#include "unisono/rendezvous/serve_store.h"
#include "unisono/store/store.h"
#include "unisono/store/tcp_store.h"

#include "core_store.h"

namespace unisono::python {
namespace {

constexpr int kMaxPort = 65'535;
constexpr const char* kWorkers = "unisono/workers";
constexpr const char* kAllWorkers = "unisono/workers/all";

[[noreturn]] void refuse(const std::string& problem) {
  throw Error(ErrorCode::kInvalidArgument, "unisono.Store: " + problem);
}

void check(const StoreOptions& options) {
  const int first_port = options.is_master ? 0 : 1;
  if (options.port < first_port || options.port > kMaxPort) {
    refuse("port " + std::to_string(options.port) + " is not from " + std::to_string(first_port) +
           " to " + std::to_string(kMaxPort));
  }
  if (options.world_size && *options.world_size < 1) {
    refuse("a world size of " + std::to_string(*options.world_size));
  }
  if (options.timeout <= std::chrono::milliseconds::zero()) {
    refuse("a timeout of " + std::to_string(options.timeout.count()) + " ms");
  }
}

std::shared_ptr<store::TcpStore> connect(const store::TcpStoreOptions& options, Deadline deadline) {
  try {
    return std::make_shared<store::TcpStore>(options, deadline);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kTimeout) {
      throw Error(ErrorCode::kPeerLost, error.what());
    }
    throw;
  }
}

// Each worker counts its arrival; the master waits for all workers.
void meet_workers(store::Store& store, const StoreOptions& options, Deadline deadline) {
  const int n_workers = *options.world_size;
  if (store.add(kWorkers, 1) == n_workers) {
    store.set(kAllWorkers, "");
  }
  if (!options.is_master) {
    return;
  }
  try {
    const std::string key = kAllWorkers;
    store.wait(std::span(&key, 1), deadline);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) {
      throw;
    }
    throw Error(error.code(),
                "unisono.Store: " + store.try_get(kWorkers).value_or("0") + " of " +
                    std::to_string(n_workers) + " workers, this one included, came to " +
                    options.host + " within " + std::to_string(options.timeout.count()) + " ms");
  }
  store.delete_key(kWorkers);
  store.delete_key(kAllWorkers);
}

}  // namespace

StoreAccess open_store(const StoreOptions& options) {
  check(options);
  const Deadline deadline = Deadline::after(options.timeout);
  const base::Config config = read_config(process_environment());
  const bool tls = options.tls.value_or(config.tls);
  rendezvous::StoreSession session;
  session.secret = options.secret ? *options.secret : rendezvous::find_secret(config, options.host);
  if (session.secret.empty() && options.tls.value_or(false)) {
    refuse("TLS needs a secret, which its key is made of");
  }
  session.launch_info.master_addr = options.host;
  session.launch_info.master_port = static_cast<std::uint16_t>(options.port);
  if (options.is_master) {
    session.host = std::make_unique<store::TcpStoreHost>(store::TcpServerOptions{
        .address = rendezvous::listen_address(
            options.host, session.launch_info.master_port, !session.secret.empty()),
        .secret = session.secret,
        .tls = tls,
        .logger = base::Logger("store", config.log_level)});
    session.launch_info.master_port = session.host->address().port();
  }
  const store::TcpStoreOptions client{.host = options.host,
                                      .port = session.launch_info.master_port,
                                      .secret = session.secret,
                                      .tls = tls};
  const std::shared_ptr<store::TcpStore> store = connect(client, deadline);
  session.local_ip = store->local_address().ip();
  session.store = store;
  session.connect_again = [client](std::chrono::milliseconds timeout) {
    store::TcpStoreOptions again = client;
    again.if_refused = net::IfRefused::kGiveUp;
    return connect(again, Deadline::after(timeout));
  };
  if (options.world_size && options.wait_for_workers) {
    meet_workers(*store, options, deadline);
  }
  return access_of(std::move(session));
}

}  // namespace unisono::python
