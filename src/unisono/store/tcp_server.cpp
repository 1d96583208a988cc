#include "unisono/store/tcp_server.h"

#include <fmt/format.h>
#include <sys/epoll.h>  // IWYU pragma: keep (EPOLLIN, EPOLLOUT)
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/net/address.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/io.h"
#include "unisono/net/network.h"
#include "unisono/net/socket.h"
#include "unisono/net/socket_owner.h"
#include "unisono/store/session.h"
#include "unisono/store/store_map.h"

namespace unisono::store {
namespace {

// A client that has gone meanwhile has no address, and no owner.
bool admits_plain(int fd, const PlainClients& allowed) {
  try {
    const net::Address client = net::peer_address(fd);
    const auto contains_client = [&](const net::Network& network) {
      return network.contains(client);
    };
    return std::any_of(allowed.networks.begin(), allowed.networks.end(), contains_client) ||
           (allowed.own_user && client.is_loopback() &&
            net::find_socket_owner(client, net::local_address(fd)) == ::geteuid());
  } catch (const Error&) {
    return false;
  }
}

// A connection of the server: the socket and what waits to be written to it.
struct Connection {
  Connection(Fd socket, ClientId id, StoreMap& map, const TcpServerOptions& options)
      : fd(std::move(socket)),
        peer(net::describe_peer(fd.get())),
        session(id, map, options.secret, options.limits, [this, &options] {
          return admits_plain(fd.get(), options.plain_clients);
        }) {}

  [[nodiscard]] std::size_t n_unsent() const { return unsent.size() - n_sent; }

  Fd fd;
  std::string peer;
  Session session;
  std::vector<std::byte> unsent;
  std::size_t n_sent = 0;
  bool is_watching_writes = false;
  net::EventLoop::TimerId admission_timer = 0;
};

void check_address(const TcpServerOptions& options) {
  if (options.secret.empty() && !options.address.is_loopback() && !options.insecure) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("a store on {} can be reached from other machines and has no secret: "
                            "set UNISONO_SECRET or UNISONO_SECRET_FILE on every rank, or use "
                            "127.0.0.1",
                            options.address.to_string()));
  }
}

}  // namespace

class TcpStoreServer::Impl {
 public:
  Impl(net::EventLoop& loop, const TcpServerOptions& options)
      : loop_(loop),
        options_(options),
        listener_((check_address(options), net::listen_tcp(options.address))),
        address_(net::local_address(listener_.get())) {
    watch_listener();
  }

  ~Impl() {
    if (accept_timer_ == 0) {
      loop_.remove(listener_.get());
    }
    loop_.cancel_timer(accept_timer_);
    while (!connections_.empty()) {
      drop(connections_.begin()->first);
    }
  }

  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  Impl(Impl&&) = delete;
  Impl& operator=(Impl&&) = delete;

  [[nodiscard]] const net::Address& address() const { return address_; }

  [[nodiscard]] std::size_t n_connections() const { return connections_.size(); }

 private:
  void watch_listener() {
    loop_.add(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept(); });
  }

  void accept() {
    net::Accepted accepted = net::accept_connection(listener_.get());
    if (accepted.error_number != 0) {
      pause_accepting(accepted.error_number);
    } else if (!accepted.fd.is_open()) {
      return;
    } else if (connections_.size() >= options_.limits.max_connections) {
      options_.logger.warning(
          fmt::format("store {}: {} is turned away; all {} connections are taken",
                      address_.to_string(),
                      net::describe_peer(accepted.fd.get()),
                      connections_.size()));
    } else {
      admit(std::move(accepted.fd));
    }
  }

  // Out of descriptors, say: the listener would be ready all the time and the loop spin.
  void pause_accepting(int error_number) {
    constexpr auto kPause = std::chrono::milliseconds(100);
    options_.logger.warning(fmt::format("store {}: can't take a connection: {}; trying again",
                                        address_.to_string(),
                                        std::generic_category().message(error_number)));
    loop_.remove(listener_.get());
    accept_timer_ = loop_.add_timer(Deadline::after(kPause), [this] {
      accept_timer_ = 0;
      watch_listener();
    });
  }

  void admit(Fd fd) {
    const ClientId id = next_id_++;
    auto connection = std::make_unique<Connection>(std::move(fd), id, map_, options_);
    try {
      net::set_no_delay(connection->fd.get());
      net::set_liveness_timeout(connection->fd.get(), std::chrono::seconds(60));
      loop_.add(connection->fd.get(), EPOLLIN, [this, id](std::uint32_t events) {
        on_event(id, events);
      });
    } catch (const Error& error) {
      options_.logger.warning(fmt::format(
          "store {}: can't serve {}: {}", address_.to_string(), connection->peer, error.what()));
      return;
    }
    connection->admission_timer =
        loop_.add_timer(Deadline::after(options_.admission_timeout), [this, id] {
          Connection& late = *connections_.at(id);
          if (!late.session.is_admitted()) {
            drop_with_reason(late, id, "it did not introduce itself in time");
          }
        });
    connections_.emplace(id, std::move(connection));
  }

  void on_event(ClientId id, std::uint32_t events) {
    Connection& connection = *connections_.at(id);
    if ((events & EPOLLOUT) != 0 && !flush(connection)) {
      drop(id);
      return;
    }
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
      read(connection, id);
      serve_others();
    }
  }

  // One read per event keeps a busy client from holding up the others.
  void read(Connection& connection, ClientId id) {
    const net::IoResult result = net::read_some(connection.fd.get(), buffer_);
    if (result.status == net::IoStatus::kWouldBlock) {
      return;
    }
    if (result.status != net::IoStatus::kDone) {
      drop(id);
      return;
    }
    connection.session.set_n_unsent_bytes(connection.n_unsent());
    connection.session.feed(std::span(buffer_).first(result.n_bytes));
    settle(connection, id);
  }

  // A client that is woken may go on with requests that concern others in turn.
  void serve_others() {
    for (;;) {
      const std::vector<ClientId> woken = map_.take_woken();
      const std::vector<StoreMap::News> news = map_.take_news();
      if (woken.empty() && news.empty()) {
        return;
      }
      for (const ClientId id : woken) {
        tell(id, [](Session& session) { session.wake(); });
      }
      for (const StoreMap::News& item : news) {
        tell(item.client, [&](Session& session) { session.notify(*item.change); });
      }
    }
  }

  template <class Body>
  void tell(ClientId id, const Body& body) {
    const auto found = connections_.find(id);
    if (found != connections_.end()) {
      found->second->session.set_n_unsent_bytes(found->second->n_unsent());
      body(found->second->session);
      settle(*found->second, id);
    }
  }

  // Sends what the session has to say, and drops it when it is to end.
  void settle(Connection& connection, ClientId id) {
    const std::vector<std::byte> output = connection.session.take_output();
    connection.unsent.insert(connection.unsent.end(), output.begin(), output.end());
    const bool is_alive = flush(connection);
    if (!connection.session.problem().empty()) {
      drop_with_reason(connection, id, connection.session.problem());
    } else if (!is_alive) {
      drop(id);
    }
  }

  // False when the connection is lost.
  bool flush(Connection& connection) {
    while (connection.n_unsent() > 0) {
      const net::IoResult result = net::write_some(
          connection.fd.get(), std::span(connection.unsent).subspan(connection.n_sent));
      if (result.status == net::IoStatus::kWouldBlock) {
        break;
      }
      if (result.status != net::IoStatus::kDone) {
        return false;
      }
      connection.n_sent += result.n_bytes;
    }
    if (connection.n_sent >= connection.n_unsent()) {
      const auto begin = connection.unsent.begin();
      connection.unsent.erase(begin, begin + static_cast<std::ptrdiff_t>(connection.n_sent));
      connection.n_sent = 0;
    }
    const bool has_more = connection.n_unsent() > 0;
    if (has_more != connection.is_watching_writes) {
      connection.is_watching_writes = has_more;
      loop_.modify(connection.fd.get(), has_more ? EPOLLIN | EPOLLOUT : EPOLLIN);
    }
    return true;
  }

  void drop_with_reason(Connection& connection, ClientId id, const std::string& reason) {
    options_.logger.warning(
        fmt::format("store {}: dropped {}: {}", address_.to_string(), connection.peer, reason));
    // Lets the last words out before a close that may reset the connection.
    ::shutdown(connection.fd.get(), SHUT_WR);
    drop(id);
  }

  void drop(ClientId id) {
    const auto found = connections_.find(id);
    loop_.remove(found->second->fd.get());
    loop_.cancel_timer(found->second->admission_timer);
    connections_.erase(found);
  }

  static constexpr std::size_t kReadBytes = std::size_t{64} << 10;

  net::EventLoop& loop_;
  TcpServerOptions options_;
  Fd listener_;
  net::Address address_;
  net::EventLoop::TimerId accept_timer_ = 0;
  StoreMap map_;
  ClientId next_id_ = 1;
  std::unordered_map<ClientId, std::unique_ptr<Connection>> connections_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kReadBytes);
};

TcpStoreServer::TcpStoreServer(net::EventLoop& loop, const TcpServerOptions& options)
    : impl_(std::make_unique<Impl>(loop, options)) {}

TcpStoreServer::~TcpStoreServer() = default;

const net::Address& TcpStoreServer::address() const {
  return impl_->address();
}

std::size_t TcpStoreServer::n_connections() const {
  return impl_->n_connections();
}

}  // namespace unisono::store
