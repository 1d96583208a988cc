#include "unisono/launch/port.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/net/port_holder.h"

namespace unisono::launch {
PortReservation::PortReservation(std::uint16_t port)
    : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), port_(port) {
  if (!socket_.is_open()) {
    throw system_error("socket", errno);
  }
  const int on = 1;
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(port);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(socket_.get(), generic, size) != 0) {
    const int error_number = errno;
    const std::string holder =
        error_number == EADDRINUSE ? net::find_port_holder(port) : std::string();
    throw system_error(
        fmt::format("port {} (--master-port) can't be used{}; name another, or leave it out and a "
                    "free one is chosen",
                    port,
                    holder.empty() ? "" : " (" + holder + " listens on it)"),
        error_number);
  }
  if (::getsockname(socket_.get(), generic, &size) != 0) {
    throw system_error("getsockname", errno);
  }
  port_ = ntohs(address.sin_port);
}

}  // namespace unisono::launch
