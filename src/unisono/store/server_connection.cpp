#include "unisono/store/server_connection.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/net/address.h"
#include "unisono/net/hello.h"
#include "unisono/net/io.h"
#include "unisono/net/ports.h"
#include "unisono/net/socket.h"
#include "unisono/store/protocol.h"
#include "unisono/store/requests.h"

namespace unisono::store {

void RejectedConnections::add(ClientKind client,
                              const std::string& peer,
                              const std::string& reason) {
  Kind& kind = kinds_.at(static_cast<std::size_t>(client));
  ++kind.n_connections;
  kind.last_peer = peer;
  kind.last_reason = reason;
}

std::string RejectedConnections::describe() const {
  std::string text;
  for (const auto& [n_connections, last_peer, last_reason] : kinds_) {
    if (n_connections > 0) {
      text += text.empty() ? "the store has rejected " : "; ";
      text += n_connections == 1 ? "a connection"
                                 : fmt::format("{} connections, the last", n_connections);
      text += fmt::format(" from {}: {}", last_peer, last_reason);
    }
  }
  return text;
}

namespace {

// A client that has disconnected meanwhile has no address and no socket owner.
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

ClientKind kind_by(std::byte first) {
  if (first == net::kHelloByte) {
    return ClientKind::kHello;
  }
  if (first == net::kTlsByte) {
    return ClientKind::kTls;
  }
  return first == static_cast<std::byte>(Opcode::kValidate) ? ClientKind::kPlain
                                                            : ClientKind::kOther;
}

}  // namespace

ServerConnection::ServerConnection(Fd socket,
                                   ClientId id,
                                   StoreMap& map,
                                   const TcpServerOptions& options)
    : options_(options),
      fd_(std::move(socket)),
      peer_(net::describe_peer(fd_.get())),
      session_(
          id,
          map,
          options.secret,
          options.limits,
          [this] { return admits_plain(fd_.get(), options_.plain_clients); },
          options.job) {}

void ServerConnection::receive(std::span<const std::byte> bytes, std::span<std::byte> buffer) {
  if (!has_begun_) {
    begin(bytes.front());
  }
  if (!problem_.empty()) {
    return;
  }
  if (tls_ == nullptr) {
    session_.feed(bytes);
    return;
  }
  tls_->receive(bytes);
  while (const std::size_t n = tls_->read(buffer)) {
    session_.feed(buffer.first(n));
  }
}

// The client's first byte shows whether the client uses TLS.
void ServerConnection::begin(std::byte first) {
  has_begun_ = true;
  client_kind_ = kind_by(first);
  if (options_.tls && first == net::kTlsByte) {
    tls_ = std::make_unique<net::Tls>(net::Tls::Side::kServer, options_.secret);
  } else if (options_.tls && first == net::kHelloByte) {
    problem_ = "it does not use TLS, which this store requires; set UNISONO_TLS=on on all ranks";
  } else if (first == net::kTlsByte) {
    problem_ = "it uses TLS, which this store does not; set UNISONO_TLS on all ranks or on none";
  }
}

bool ServerConnection::flush() {
  Replies& replies = session_.replies();
  seal();
  while (has_more()) {
    const net::IoResult result = tls_ == nullptr
                                     ? net::write_some(fd_.get(), replies.first(), replies.second())
                                     : net::write_some(fd_.get(), sealed_);
    if (result.status != net::IoStatus::kDone) {
      return result.status == net::IoStatus::kWouldBlock;
    }
    if (tls_ == nullptr) {
      replies.drop(result.n_bytes);
    } else {
      sealed_.erase(sealed_.begin(), sealed_.begin() + static_cast<std::ptrdiff_t>(result.n_bytes));
      seal();
    }
  }
  return true;
}

// Encrypts only after all encrypted bytes were sent: unread replies must stay in the session's
// Replies, to count against the limit.
void ServerConnection::seal() {
  constexpr std::size_t kSealedBytes = std::size_t{64} << 10;
  if (tls_ == nullptr || !sealed_.empty()) {
    return;
  }
  Replies& replies = session_.replies();
  while (sealed_.size() < kSealedBytes) {
    const std::span<const std::byte> next = replies.first();
    const std::size_t n = std::min(next.size(), kSealedBytes);
    tls_->write(next.first(n));
    replies.drop(n);
    const std::vector<std::byte> output = tls_->take_output();
    if (output.empty()) {
      return;
    }
    sealed_.insert(sealed_.end(), output.begin(), output.end());
  }
}

bool ServerConnection::has_more() const {
  return !sealed_.empty() || session_.replies().n_bytes() > 0;
}

const std::string& ServerConnection::problem() const {
  if (!problem_.empty()) {
    return problem_;
  }
  return tls_ == nullptr || tls_->problem().empty() ? session_.problem() : tls_->problem();
}

}  // namespace unisono::store
