#pragma once

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

/// The connection itself.
class TcpStream final : public transport::Stream {
 public:
  explicit TcpStream(Fd socket) : socket_(std::move(socket)) {}

  [[nodiscard]] net::IoResult write_some(std::span<const std::byte> head,
                                         std::span<const std::byte> rest) noexcept override {
    return net::write_some(socket_.get(), head, rest);
  }

  [[nodiscard]] net::IoResult read_some(std::span<std::byte> bytes) noexcept override {
    return net::read_some(socket_.get(), bytes);
  }

  void add_polls(std::vector<pollfd>& polls, bool reads, bool writes) override {
    const int events = (reads ? POLLIN : 0) | (writes ? POLLOUT : 0);
    polls.push_back({.fd = socket_.get(), .events = static_cast<short>(events), .revents = 0});
  }

  void end_writing() noexcept override { ::shutdown(socket_.get(), SHUT_WR); }

  [[nodiscard]] int socket() const noexcept override { return socket_.get(); }

  [[nodiscard]] std::string describe(int error_number) const override {
    return std::generic_category().message(error_number);
  }

 private:
  Fd socket_;
};

[[nodiscard]] inline transport::MakeStream prepare_streams() {
  return [](Fd socket) { return std::make_unique<TcpStream>(std::move(socket)); };
}

}  // namespace unisono::tcp
