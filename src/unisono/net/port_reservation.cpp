#include "unisono/net/port_reservation.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstdint>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/port_range.h"
#include "unisono/net/address.h"
#include "unisono/net/bind_in_range.h"
#include "unisono/net/socket.h"

namespace unisono::net {

namespace {

Fd open_socket(const Address& address) {
  Fd fd =
      Fd::open_unshared([&] { return ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0); });
  if (!fd.is_open()) {
    throw system_error("socket", errno);
  }
  return fd;
}

}  // namespace

PortReservation::PortReservation(const Address& address) : socket_(open_socket(address)) {
  const int on = 1;
  (void)::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(socket_.get(), address.data(), address.size()) != 0) {
    throw system_error("reserve the port of " + address.to_string(), errno);
  }
}

PortReservation::PortReservation(const Address& address, const PortRange& ports)
    : socket_(bind_in_range(
          address, ports, [&] { return open_socket(address); }, [](int) { return true; })) {}

std::uint16_t PortReservation::port() const {
  return local_address(socket_.get()).port();
}

}  // namespace unisono::net
