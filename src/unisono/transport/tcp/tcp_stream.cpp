#include "unisono/transport/tcp/tcp_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "unisono/base/fd.h"
#include "unisono/net/io.h"
#include "unisono/transport/stream.h"

namespace unisono::tcp {

net::IoResult TcpStream::write_some(std::span<const std::byte> head,
                                    std::span<const std::byte> rest) noexcept {
  return net::write_some(socket_.get(), head, rest);
}

net::IoResult TcpStream::read_some(std::span<std::byte> bytes) noexcept {
  return net::read_some(socket_.get(), bytes);
}

void TcpStream::add_polls(std::vector<pollfd>& polls, bool reads, bool writes) {
  const int events = (reads ? POLLIN : 0) | (writes ? POLLOUT : 0);
  polls.push_back({.fd = socket_.get(), .events = static_cast<short>(events), .revents = 0});
}

void TcpStream::end_writing() noexcept {
  ::shutdown(socket_.get(), SHUT_WR);
}

std::string TcpStream::describe(int error_number) const {
  return std::generic_category().message(error_number);
}

transport::MakeStream prepare_streams() {
  return [](Fd socket) { return std::make_unique<TcpStream>(std::move(socket)); };
}

}  // namespace unisono::tcp
