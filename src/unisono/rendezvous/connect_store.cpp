#include "unisono/rendezvous/connect_store.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/net/address.h"
#include "unisono/net/interfaces.h"
#include "unisono/net/loopback.h"
#include "unisono/net/socket.h"
#include "unisono/rendezvous/interface_choice.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/secret.h"
#include "unisono/rendezvous/serve_store.h"
#include "unisono/rendezvous/store_client.h"
#include "unisono/store/store.h"
#include "unisono/store/tcp_store.h"

namespace unisono::rendezvous {

StoreSession connect_store(const Config& config,
                           const LaunchInfo& launch_info,
                           Deadline deadline,
                           const RosterKeys& keys) {
  StoreSession session;
  session.launch_info = launch_info;
  session.launch_info.master_addr = meeting_host(launch_info);
  session.secret = find_secret(config, session.launch_info);
  std::shared_ptr<store::TcpStore> store;
  if (serves_store(launch_info)) {
    ServedStore served = serve_store(config, session.launch_info, session.secret, deadline, keys);
    session.host = std::move(served.host);
    session.is_second_rank_0 = served.of_twin != nullptr;
    store = std::move(served.of_twin);
  }
  if (store == nullptr) {
    store = connect_as_client(config, session.launch_info, session.secret, deadline);
  }
  session.store_fd = launch_info.uses_agent_store ? store->fd() : -1;
  session.local_ip = store->local_address().ip();
  session.store = store;
  session.connect_again = [options = store_options(config, session.launch_info, session.secret)](
                              std::chrono::milliseconds io_timeout) {
    store::TcpStoreOptions again = options;
    again.io_timeout = io_timeout;
    again.if_refused = net::IfRefused::kGiveUp;
    return std::make_shared<store::TcpStore>(again, Deadline::after(io_timeout));
  };
  return session;
}

void leave_after_failure(StoreSession& session, std::chrono::seconds longest) {
  session.store.reset();
  if (session.host != nullptr) {
    session.host->wait_until_left(Deadline::after(longest));
  }
}

StoreSession use_store(const GivenStore& given,
                       const Config& config,
                       const LaunchInfo& launch_info) {
  StoreSession session;
  session.launch_info = launch_info;
  session.secret = given.secret ? *given.secret : find_secret(config, net::loopback_host());
  session.store = given.store;
  session.store_fd = given.fd;
  session.connect_again = given.connect_again;
  if (session.connect_again == nullptr) {
    session.connect_again = [store = given.store](std::chrono::milliseconds) { return store; };
  }
  if (session.secret.empty()) {
    session.local_ip = net::loopback_host();
  } else if (given.local_ip.empty()) {
    session.local_ip =
        choose_own_address(config.interface, net::interfaces(), net::default_route_address()).ip();
  } else {
    session.local_ip = given.local_ip;
  }
  return session;
}

Fd listen_for_data(const Config& config, const StoreSession& session) {
  std::optional<net::Address> address = net::Address::parse(session.local_ip, 0);
  UNISONO_CHECK(address.has_value(),
                fmt::format("the store was reached from \"{}\"", session.local_ip));
  if (!config.interface.empty() && !session.secret.empty()) {
    address = choose_data_interface(config.interface, net::interfaces(), *address).address;
  }
  return config.ports ? net::listen_tcp(*address, *config.ports) : net::listen_tcp(*address);
}

}  // namespace unisono::rendezvous
