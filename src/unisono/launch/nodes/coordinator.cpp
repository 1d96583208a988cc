#include "unisono/launch/nodes/coordinator.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <chrono>
#include <optional>
#include <utility>
#include <variant>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/launch/report.h"
#include "unisono/net/hello.h"
#include "unisono/net/socket.h"

namespace unisono::launch::nodes {
namespace {

using Clock = Deadline::Clock;

constexpr std::chrono::milliseconds kAcceptPause{100};

}  // namespace

Coordinator::Coordinator(net::EventLoop& loop, const CoordinatorOptions& options)
    : loop_(loop),
      options_(options),
      listener_(net::listen_tcp(options.address)),
      address_(net::local_address(listener_.get())),
      rendezvous_(options.rendezvous, Clock::now()) {
  loop_.add(listener_.get(), EPOLLIN, [this](std::uint32_t /*events*/) { accept_all(); });
  on_time();
}

Coordinator::~Coordinator() {
  loop_.cancel_timer(timer_);
  stop_listening();
}

// A node that connects from now on is refused, and may try again until the coordinator of the next
// job listens.
void Coordinator::stop_listening() {
  loop_.cancel_timer(accept_timer_);
  if (listener_.is_open()) {
    loop_.remove(listener_.get());
    listener_.reset();
  }
}

void Coordinator::accept_all() {
  lost_.clear();
  while (true) {
    net::Accepted accepted = net::accept_connection(listener_.get());
    if (accepted.error_number != 0) {
      // The listener stays readable, so the loop would spin without this pause.
      loop_.modify(listener_.get(), 0);
      accept_timer_ = loop_.add_timer(Deadline::after(kAcceptPause),
                                      [this] { loop_.modify(listener_.get(), EPOLLIN); });
      return;
    }
    if (!accepted.fd.is_open()) {
      return;
    }
    const std::optional<NodeId> overdue = unauthenticated_.overdue(Clock::now());
    if (unauthenticated_.is_full() && overdue) {
      unauthenticated_.remove(*overdue);
      connections_.erase(*overdue);
    }
    if (!unauthenticated_.is_full()) {
      admit(std::move(accepted.fd));
    }
  }
}

void Coordinator::admit(Fd socket) {
  const NodeId id = next_id_++;
  unauthenticated_.add(id, Clock::now());
  connections_.emplace(
      id,
      std::make_unique<NodeConnection>(
          loop_,
          std::move(socket),
          net::Hello::Side::kServer,
          options_.secret,
          options_.keep_alive,
          NodeConnection::Events{
              .on_message = [this, id](const Message& message) { on_message(id, message); },
              .on_lost = [this, id](const std::string& why) { on_lost(id, why); }}));
}

void Coordinator::on_message(NodeId id, const Message& message) {
  unauthenticated_.remove(id);
  rendezvous_.take(id, message, Clock::now());
  carry_out();
}

void Coordinator::on_lost(NodeId id, const std::string& why) {
  const auto found = connections_.find(id);
  if (unauthenticated_.remove(id)) {
    options_.logger.warning(
        fmt::format("rejected a connection from {}: {}", found->second->peer(), why));
  }
  lost_.push_back(std::move(found->second));
  connections_.erase(found);
  rendezvous_.lose(id, why, Clock::now());
  carry_out();
}

void Coordinator::on_time() {
  rendezvous_.on_time(Clock::now());
  carry_out();
}

void Coordinator::carry_out() {
  for (NodeRendezvous::Order& order : rendezvous_.take_orders()) {
    if (auto* const start = std::get_if<Start>(&order.message)) {
      try {
        complete(*start);
      } catch (const Error& error) {
        rendezvous_.end(kLauncherFailed, error.what());
        carry_out();
        return;
      }
    }
    const auto connection = connections_.find(order.node);
    if (connection != connections_.end()) {
      connection->second->send(order.message);
    }
  }
  if (rendezvous_.is_over()) {
    stop_listening();
  }
  loop_.cancel_timer(timer_);
  const NodeRendezvous::Time due = rendezvous_.next_due();
  if (due != NodeRendezvous::Time::max()) {
    timer_ = loop_.add_timer(Deadline::at(due), [this] { on_time(); });
  }
}

// Completes the order with the port of the store. Each generation has an empty store on another
// port, so that a rank of the last generation cannot reach the new store.
void Coordinator::complete(Start& order) {
  if (order.generation != generation_) {
    generation_ = order.generation;
    store_.reset();
    kept_port_.reset();
    if (options_.serves_store) {
      store_ = std::make_unique<store::TcpStoreServer>(loop_, options_.store);
      master_port_ = store_->address().port();
    } else {
      kept_port_ = std::make_unique<net::PortReservation>(options_.store.address);
      master_port_ = kept_port_->port();
    }
  }
  order.has_store = options_.serves_store;
  order.master_port = master_port_;
}

}  // namespace unisono::launch::nodes
