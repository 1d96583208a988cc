#include "unisono/store/testing/tcp.h"

#include <poll.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "unisono/base/bytes.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/net/address.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/store/messages.h"
#include "unisono/store/protocol.h"
#include "unisono/store/testing/stores.h"

namespace unisono::store::testing {

TcpServerOptions quiet(const std::string& secret) {
  return {.address = net::Address::loopback(0),
          .secret = secret,
          .logger = Logger("store", LogLevel::kError)};
}

TcpStoreOptions client_of(const net::Address& address, const std::string& secret) {
  return {.host = address.ip(), .port = address.port(), .secret = secret};
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

std::unique_ptr<TcpStore> ServedStore::connect() const {
  return std::make_unique<TcpStore>(client_of(host_->address(), GetParam()), soon());
}

RawClient::RawClient(const net::Address& address) : fd_(net::connect_tcp(address, soon())) {}

void RawClient::send(const std::vector<std::byte>& bytes) {
  net::write_all(fd_.get(), bytes, soon(), "raw");
}

void RawClient::send_validate() {
  ByteWriter message = begin(Opcode::kValidate);
  message.put(kValidateMagic);
  send(message.bytes());
}

bool RawClient::is_dropped() {
  std::vector<std::byte> bytes(1 << 16);
  while (net::wait_for(fd_.get(), POLLIN, soon())) {
    const net::IoStatus status = net::read_some(fd_.get(), bytes).status;
    if (status == net::IoStatus::kClosed || status == net::IoStatus::kError) {
      return true;
    }
  }
  return false;
}

bool RawClient::has_ended() const {
  pollfd socket{.fd = fd_.get(), .events = POLLRDHUP, .revents = 0};
  return ::poll(&socket, 1, 0) == 1;
}

}  // namespace unisono::store::testing
