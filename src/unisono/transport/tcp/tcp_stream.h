#pragma once

#include <poll.h>

#include <cstddef>
#include <span>
#include <string>
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
                                         std::span<const std::byte> rest) noexcept override;
  [[nodiscard]] net::IoResult read_some(std::span<std::byte> bytes) noexcept override;

  void add_polls(std::vector<pollfd>& polls, bool reads, bool writes) override;
  void end_writing() noexcept override;

  [[nodiscard]] int socket() const noexcept override { return socket_.get(); }

  [[nodiscard]] std::string describe(int error_number) const override;

 private:
  Fd socket_;
};

[[nodiscard]] transport::MakeStream prepare_streams();

}  // namespace unisono::tcp
