#pragma once

#include <functional>

#include "unisono/base/fd.h"
#include "unisono/base/port_range.h"
#include "unisono/net/address.h"

namespace unisono::net {

/// A TCP socket of `open` that is bound to `address`, whatever its port is, with a port of `ports`,
/// and that `use` has taken: the first port that nobody has bound; or else the first in which
/// connections linger that have ended, or which somebody has reserved. Sets SO_REUSEADDR.
///
/// `use` returns false when another was faster in using the port. Throws Error(kSystem) that names
/// the ports when all are in use, each time it looks for half a second: those who compete for the
/// last ones may keep them from each other for a moment.
[[nodiscard]] Fd bind_in_range(const Address& address,
                               const PortRange& ports,
                               const std::function<Fd()>& open,
                               const std::function<bool(int fd)>& use);

}  // namespace unisono::net
