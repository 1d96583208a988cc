#pragma once

#include <sys/types.h>

#include <optional>

#include "unisono/net/address.h"

namespace unisono::net {

/// The user to whom the connected TCP socket belongs that has `local` as its own and `remote` as
/// its other end, as /proc/net/tcp and tcp6 of this network namespace show it. Nothing if there is
/// none.
///
/// Takes time in proportion to the number of this machine's connections.
[[nodiscard]] std::optional<uid_t> find_socket_owner(const Address& local, const Address& remote);

}  // namespace unisono::net
