#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/mutex.h"
#include "unisono/net/tls.h"

namespace unisono::net {

/// TLS over a socket that stays its owner's, as a client that blocks. One thread may write while
/// another reads.
class TlsStream {
 public:
  /// Shakes hands. `peer` names the other side in errors.
  ///
  /// Throws Error: kUnauthenticated, kPeerLost, kTimeout.
  TlsStream(int fd, const std::string& secret, Deadline deadline, const std::string& peer);

  /// Throws as net::write_all() does.
  void write_all(std::span<const std::byte> bytes, Deadline deadline, const std::string& peer);

  /// Waits for bytes to read, at least one; 0 when the deadline passed before. Throws
  /// Error(kPeerLost).
  [[nodiscard]] std::size_t read_some(std::span<std::byte> bytes,
                                      Deadline deadline,
                                      const std::string& peer);

 private:
  [[nodiscard]] std::size_t decrypt(std::span<std::byte> bytes, const std::string& peer);

  int fd_;
  Mutex mutex_;
  Tls tls_ UNISONO_GUARDED_BY(mutex_);
  std::vector<std::byte> received_;  // Of who reads.
};

}  // namespace unisono::net
