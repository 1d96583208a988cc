#include "unisono/store/tcp_server.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/epoll.h>  // IWYU pragma: keep (EPOLLIN, EPOLLOUT)
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/net/hello.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/net/tls.h"
#include "unisono/net/unauthenticated_connections.h"
#include "unisono/store/protocol.h"
#include "unisono/store/requests.h"
#include "unisono/store/server_connection.h"
#include "unisono/store/session.h"
#include "unisono/store/store_map.h"

namespace unisono::store {
namespace {

struct Connection : ServerConnection {
  using ServerConnection::ServerConnection;

  bool is_watching_writes = false;
  net::EventLoop::TimerId admission_timer = 0;
};

void check(const TcpServerOptions& options) {
  if (options.secret.empty() && !options.address.is_loopback() && !options.insecure) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("a store on {} can be reached from other machines and has no secret: "
                            "set UNISONO_SECRET or UNISONO_SECRET_FILE on every rank, or use "
                            "loopback, 127.0.0.1 or ::1",
                            options.address.to_string()));
  }
  if (options.job.size() > net::kMaxJobBytes) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("a store's job has a name of {} bytes; it may have {}",
                            options.job.size(),
                            net::kMaxJobBytes));
  }
  if (options.tls) {
    net::Tls::check_usable(options.secret, "store " + options.address.to_string());
  }
}

}  // namespace

class TcpStoreServer::Impl {
 public:
  Impl(net::EventLoop& loop, const TcpServerOptions& options)
      : loop_(loop),
        options_(options),
        listener_((check(options), net::listen_tcp(options.address))),
        address_(net::local_address(listener_.get())) {
    watch_listener();
  }

  ~Impl() {
    if (accept_timer_ == 0) {
      loop_.remove(listener_.get());
    }
    loop_.cancel_timer(accept_timer_);
    loop_.cancel_timer(log_timer_);
    log_.catch_up();
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
    loop_.add(listener_.get(), EPOLLIN, [this](std::uint32_t) {
      accept();
      tell_others();
    });
  }

  void accept() {
    if (unauthenticated_.is_full() && !make_room()) {
      pause_accepting(
          fmt::format("{} clients have not sent their first request", unauthenticated_.size()));
      return;
    }
    net::Accepted accepted = net::accept_connection(listener_.get());
    if (accepted.error_number != 0) {
      if (!make_room()) {
        pause_accepting(descriptor_error("accepting one", accepted.error_number).what());
      }
    } else if (!accepted.fd.is_open()) {
      return;
    } else {
      admit(std::move(accepted.fd));
    }
  }

  // Drops the longest-waiting unauthenticated connections that have used up the time that any
  // client needs. Returns true once a place is free.
  bool make_room() {
    while (const std::optional<ClientId> oldest =
               unauthenticated_.overdue(Deadline::Clock::now())) {
      hear(*oldest);  // The loop may not have read its last bytes yet.
      const bool is_overdue = unauthenticated_.overdue(Deadline::Clock::now()) == oldest;
      const auto found = connections_.find(*oldest);
      if (found != connections_.end() && is_overdue) {
        drop_with_reason(
            *found->second, *oldest, "it did not send its first request, and other clients wait");
      }
      if (!connections_.contains(*oldest)) {
        return true;
      }
    }
    return false;
  }

  // Stops polling the listener for a while: without a free descriptor, for example, the listener
  // would stay ready and the loop would spin.
  void pause_accepting(const std::string& reason) {
    constexpr auto kPause = std::chrono::milliseconds(100);
    warn(fmt::format(
        "store {}: can't take a connection: {}; trying again", address_.to_string(), reason));
    loop_.remove(listener_.get());
    const Deadline when =
        earlier(Deadline::after(kPause), Deadline::at(unauthenticated_.next_due()));
    accept_timer_ = loop_.add_timer(when, [this] {
      accept_timer_ = 0;
      watch_listener();
    });
  }

  void admit(Fd fd) {
    const ClientId id = next_id_++;
    auto connection = std::make_unique<Connection>(std::move(fd), id, map_, options_);
    try {
      net::set_no_delay(connection->fd());
      net::set_liveness_timeout(connection->fd(), std::chrono::seconds(60));
      loop_.add(
          connection->fd(), EPOLLIN, [this, id](std::uint32_t events) { on_event(id, events); });
    } catch (const Error& error) {
      warn(fmt::format(
          "store {}: can't serve {}: {}", address_.to_string(), connection->peer(), error.what()));
      return;
    }
    connection->admission_timer =
        loop_.add_timer(Deadline::after(options_.admission_timeout), [this, id] {
          drop_with_reason(*connections_.at(id), id, "it did not send its first request in time");
          tell_others();
        });
    connections_.emplace(id, std::move(connection));
    unauthenticated_.add(id, Deadline::Clock::now());
  }

  void on_event(ClientId id, std::uint32_t events) {
    Connection& connection = *connections_.at(id);
    if ((events & EPOLLOUT) != 0 && !flush(connection)) {
      drop(id);
      tell_others();
      return;
    }
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) {
      return;
    }
    hear(id);
    tell_others();
  }

  void hear(ClientId id) {
    Connection& connection = *connections_.at(id);
    try {
      read(connection, id);
    } catch (const std::exception& error) {
      // For example out of memory: ends this connection, not the store.
      drop_with_reason(connection, id, error.what());
    }
  }

  void tell_others() {
    serve_others(map_, [this](ClientId other, const auto& body) { tell(other, body); });
  }

  // One read per event, so that a busy client does not delay other clients.
  void read(Connection& connection, ClientId id) {
    const net::IoResult result = net::read_some(connection.fd(), buffer_);
    if (result.status == net::IoStatus::kWouldBlock) {
      return;
    }
    if (result.status != net::IoStatus::kDone) {
      end(connection, id);
      return;
    }
    if (!connection.session().is_admitted()) {
      unauthenticated_.note_word(id);
      turn_away_if_full(connection.session());
    }
    connection.receive(std::span(buffer_).first(result.n_bytes), unsealed_);
    settle(connection, id);
  }

  // A rejected client stays unauthenticated until the reason was sent. Unauthenticated connections
  // have a separate limit and do not take the places of clients.
  void turn_away_if_full(Session& session) {
    const std::size_t most = options_.limits.max_connections;
    const bool is_full = connections_.size() - unauthenticated_.size() >= most;
    session.turn_away(
        is_full ? fmt::format("all {} connections that this store takes are in use", most) : "");
  }

  // The end of an admitted client or of a connection without data, such as a port probe, is not
  // logged.
  void end(const Connection& connection, ClientId id) {
    if (connection.has_begun() && !connection.session().is_admitted()) {
      const std::string reason = "it ended the connection before it was admitted";
      log_dropped(connection, reason);
      note_turned_away(
          connection.client_kind() == ClientKind::kOther ? ClientKind::kOther : ClientKind::kLeft,
          connection.peer(),
          reason);
      drop(id);
    } else {
      drop(id);
    }
  }

  template <class Body>
  void tell(ClientId id, const Body& body) {
    const auto found = connections_.find(id);
    if (found != connections_.end()) {
      body(found->second->session());
      settle(*found->second, id);
    }
  }

  // Sends pending replies, and drops a connection that must end.
  void settle(Connection& connection, ClientId id) {
    if (connection.session().is_admitted() && unauthenticated_.remove(id)) {
      loop_.cancel_timer(connection.admission_timer);
    }
    const bool is_alive = flush(connection);
    if (!connection.problem().empty()) {
      drop_with_reason(connection, id, connection.problem());
    } else if (!is_alive) {
      drop(id);
    }
  }

  // Returns false if the connection is lost.
  bool flush(Connection& connection) {
    if (!connection.flush()) {
      return false;
    }
    if (connection.has_more() != connection.is_watching_writes) {
      connection.is_watching_writes = connection.has_more();
      loop_.modify(connection.fd(), connection.has_more() ? EPOLLIN | EPOLLOUT : EPOLLIN);
    }
    return true;
  }

  void note_turned_away(ClientKind client, const std::string& peer, const std::string& reason) {
    if (options_.notes_turned_away) {
      rejected_.add(client, peer, reason);
      map_.set(std::string(kKeyPrefix) + kTurnedAwayKey, rejected_.describe());
    }
  }

  // Warnings may stop at any time, so a timer logs the number of suppressed warnings.
  void warn(const std::string& text) {
    log_.warning(text);
    if (const auto due = log_.due(); due && log_timer_ == 0) {
      log_timer_ = loop_.add_timer(Deadline::at(*due), [this] {
        log_timer_ = 0;
        log_.catch_up();
      });
    }
  }

  void log_dropped(const Connection& connection, const std::string& reason) {
    warn(fmt::format("store {}: dropped {}: {}", address_.to_string(), connection.peer(), reason));
  }

  void drop_with_reason(const Connection& connection, ClientId id, const std::string& reason) {
    log_dropped(connection, reason);
    if (!connection.session().is_admitted()) {
      note_turned_away(connection.client_kind(), connection.peer(), reason);
    }
    // Sends the final reply before the close, which may reset the connection.
    ::shutdown(connection.fd(), SHUT_WR);
    drop(id);
  }

  void drop(ClientId id) {
    const auto found = connections_.find(id);
    loop_.remove(found->second->fd());
    loop_.cancel_timer(found->second->admission_timer);
    unauthenticated_.remove(id);
    connections_.erase(found);
  }

  static constexpr std::size_t kReadBytes = std::size_t{64} << 10;
  static constexpr std::size_t kMostWarnings = 100;

  net::EventLoop& loop_;
  TcpServerOptions options_;
  Fd listener_;
  net::Address address_;
  net::EventLoop::TimerId accept_timer_ = 0;
  StoreMap map_;
  ClientId next_id_ = 1;
  std::unordered_map<ClientId, std::unique_ptr<Connection>> connections_;
  net::UnauthenticatedConnections unauthenticated_;  // Connections that are not admitted yet.
  RejectedConnections rejected_;
  net::LimitedLogger log_{options_.logger, kMostWarnings, options_.log_period};
  net::EventLoop::TimerId log_timer_ = 0;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kReadBytes);
  std::vector<std::byte> unsealed_ = std::vector<std::byte>(kReadBytes);
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

struct TcpStoreHost::Impl {
  explicit Impl(const TcpServerOptions& options) : server(loop, options) {}

  net::EventLoop loop;
  TcpStoreServer server;
  std::thread thread{[this] {
    ::pthread_setname_np(::pthread_self(), "unisono-store");
    loop.run();
  }};
};

TcpStoreHost::TcpStoreHost(const TcpServerOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}

TcpStoreHost::~TcpStoreHost() {
  impl_->loop.stop();
  impl_->thread.join();
}

const net::Address& TcpStoreHost::address() const {
  return impl_->server.address();
}

void TcpStoreHost::wait_until_left(Deadline deadline) {
  constexpr std::chrono::nanoseconds kPause = std::chrono::milliseconds(5);
  while (!deadline.has_passed()) {
    const auto n_connections = std::make_shared<std::promise<std::size_t>>();
    impl_->loop.post(
        [this, n_connections] { n_connections->set_value(impl_->server.n_connections()); });
    if (n_connections->get_future().get() == 0) {
      return;
    }
    std::this_thread::sleep_for(std::min(kPause, deadline.remaining()));
  }
}

}  // namespace unisono::store
