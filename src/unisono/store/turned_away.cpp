#include "unisono/store/turned_away.h"

#include <fmt/format.h>

#include <string>

namespace unisono::store {

std::string TurnedAway::add(const std::string& peer, const std::string& reason) {
  ++n_clients_;
  return n_clients_ == 1
             ? fmt::format("the store has turned a client away, from {}: {}", peer, reason)
             : fmt::format("the store has turned {} clients away, the last from {}: {}",
                           n_clients_,
                           peer,
                           reason);
}

}  // namespace unisono::store
