#include "unisono/store/rejected_connections.h"

#include <fmt/format.h>

#include <cstddef>
#include <string>

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
      text += text.empty() ? "the store has turned away " : "; ";
      text += n_connections == 1 ? "a connection"
                                 : fmt::format("{} connections, the last", n_connections);
      text += fmt::format(" from {}: {}", last_peer, last_reason);
    }
  }
  return text;
}

}  // namespace unisono::store
