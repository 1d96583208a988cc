#include "unisono/net/tls_stream.h"

#include <fmt/format.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/net/io.h"
#include "unisono/net/tls.h"

namespace unisono::net {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{32} << 10;

void shake_hands(
    Tls& tls, int fd, std::span<std::byte> buffer, Deadline deadline, const std::string& peer) {
  while (true) {
    const std::vector<std::byte> output = tls.take_output();
    net::write_all(fd, output, deadline, peer);
    if (!tls.problem().empty()) {
      throw Error(ErrorCode::kUnauthenticated, fmt::format("{}: {}", peer, tls.problem()));
    }
    if (tls.is_established()) {
      return;
    }
    try {
      const std::size_t n = read_at_least_one(fd, buffer, deadline, peer);
      tls.receive(buffer.first(n));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kPeerLost) {
        throw;
      }
      throw Error(error.code(),
                  fmt::format("{}, in the handshake of TLS; does its side speak TLS, too "
                              "(UNISONO_TLS=on)?",
                              error.what()));
    }
  }
}

}  // namespace

TlsStream::TlsStream(int fd, const std::string& secret, Deadline deadline, const std::string& peer)
    : fd_(fd), tls_(Tls::Side::kClient, secret), received_(kBufferBytes) {
  shake_hands(tls_, fd, received_, deadline, peer);
}

void TlsStream::write_all(std::span<const std::byte> bytes,
                          Deadline deadline,
                          const std::string& peer) {
  std::vector<std::byte> output;
  {
    const MutexLock lock(mutex_);
    tls_.write(bytes);
    output = tls_.take_output();
  }
  net::write_all(fd_, output, deadline, peer);
}

std::size_t TlsStream::read_some(std::span<std::byte> bytes,
                                 Deadline deadline,
                                 const std::string& peer) {
  while (true) {
    if (const std::size_t n = decrypt(bytes, peer)) {
      return n;
    }
    const std::size_t n = read_by(fd_, received_, deadline, peer);
    if (n == 0) {
      return 0;
    }
    const MutexLock lock(mutex_);
    tls_.receive(std::span(received_).first(n));
  }
}

std::size_t TlsStream::decrypt(std::span<std::byte> bytes, const std::string& peer) {
  const MutexLock lock(mutex_);
  const std::size_t n = tls_.read(bytes);
  if (n == 0 && !tls_.problem().empty()) {
    throw Error(ErrorCode::kPeerLost, fmt::format("{}: {}", peer, tls_.problem()));
  }
  return n;
}

}  // namespace unisono::net
