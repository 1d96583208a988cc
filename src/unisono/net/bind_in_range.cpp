#include "unisono/net/bind_in_range.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/port_range.h"
#include "unisono/net/address.h"
#include "unisono/net/backoff.h"
#include "unisono/net/port_holder.h"

namespace unisono::net {
namespace {

// With it the kernel also gives ports that others who set it have bound and do not listen at, and
// those in which ended connections linger that had it set.
void set_shares(int fd, bool shares) {
  const int value = shares ? 1 : 0;
  if (::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &value, sizeof value) != 0) {
    throw system_error("SO_REUSEADDR", errno);
  }
}

bool try_bind(int fd, const Address& address) {
  if (::bind(fd, address.data(), address.size()) == 0) {
    return true;
  }
  if (errno != EADDRINUSE) {
    throw system_error("bind to " + address.to_string(), errno);
  }
  return false;
}

Error all_in_use(const Address& address, const PortRange& ports) {
  const std::string holder = find_port_holder(ports.first);
  return {ErrorCode::kSystem,
          fmt::format("all ports from {} to {} are in use on {}{}; give UNISONO_PORTS more of them",
                      ports.first,
                      ports.last,
                      address.ip(),
                      holder.empty() ? "" : fmt::format(", the first by {}", holder))};
}

// One that is not open where all ports are taken, for now.
Fd try_range(const std::string& ip,
             const PortRange& ports,
             const std::function<Fd()>& open,
             const std::function<bool(int fd)>& use) {
  Fd fd = open();
  for (const bool shares : {false, true}) {
    for (int port = ports.first; port <= ports.last; ++port) {
      const std::optional<Address> candidate = Address::parse(ip, static_cast<std::uint16_t>(port));
      set_shares(fd.get(), shares);
      if (!candidate || !try_bind(fd.get(), *candidate)) {
        continue;
      }
      set_shares(fd.get(), true);
      if (use(fd.get())) {
        return fd;
      }
      fd = open();  // A socket can't be bound twice.
    }
  }
  return {};
}

// Where all are taken: who is about to lose a port to another keeps it from everybody meanwhile,
// and of two that listen at the same moment the kernel may refuse both. Looks are counted, and not
// the time: a process that the machine does not let run while others come and go has them, too.
constexpr int kListenerLooks = 9;  // With pauses of half a second in all.

}  // namespace

Fd bind_in_range(const Address& address,
                 const PortRange& ports,
                 const std::function<Fd()>& open,
                 const std::function<bool(int fd)>& use) {
  Backoff backoff;
  for (int look = 1;; ++look) {
    if (Fd fd = try_range(address.ip(), ports, open, use); fd.is_open()) {
      return fd;
    }
    if (look == kListenerLooks) {
      throw all_in_use(address, ports);
    }
    backoff.pause(Deadline::never());
  }
}

}  // namespace unisono::net
