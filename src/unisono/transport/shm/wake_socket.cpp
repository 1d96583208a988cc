#include "unisono/transport/shm/wake_socket.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <string>
#include <utility>

#include "unisono/base/descriptor_error.h"
#include "unisono/base/fd.h"
#include "unisono/net/unix_socket.h"

namespace unisono::shm {
namespace {

std::pair<sockaddr_un, socklen_t> address_of(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t n_bytes = std::min<std::size_t>(name.size(), net::kMaxAbstractName);
  // A name that begins with a zero byte is abstract.
  std::copy_n(name.begin(), n_bytes, address.sun_path + 1);
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + n_bytes)};
}

}  // namespace

WakeSocket::WakeSocket(const std::string& name)
    : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
  const auto [address, size] = address_of(name);
  if (!socket_.is_open() ||
      ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
    throw descriptor_error("binding the Unix socket " + name, errno);
  }
}

void WakeSocket::clear() const noexcept {
  std::array<std::byte, 16> discarded{};
  // Bounded: who rings all the time must not keep this rank here.
  for (int n = 0; n < 64; ++n) {
    if (::recv(socket_.get(), discarded.data(), discarded.size(), MSG_DONTWAIT) < 0) {
      return;
    }
  }
}

void WakeSocket::ring(const std::string& name) const noexcept {
  const auto [address, size] = address_of(name);
  const std::byte nothing{0};
  // A full queue holds rings enough, and who is gone needs none.
  (void)::sendto(socket_.get(),
                 &nothing,
                 sizeof(nothing),
                 MSG_DONTWAIT | MSG_NOSIGNAL,
                 reinterpret_cast<const sockaddr*>(&address),
                 size);
}

}  // namespace unisono::shm
