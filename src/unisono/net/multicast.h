#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/fd.h"
#include "unisono/net/address.h"
#include "unisono/net/interfaces.h"

namespace unisono::net {

/// A UDP socket that belongs to a multicast group: what one member sends comes to all, on this
/// machine, too. Nonblocking, close-on-exec, not shared with children of fork(). Not thread-safe.
class MulticastSocket {
 public:
  /// Joins on those of the interfaces that are up and have an address of the group's family.
  ///
  /// Throws Error: kInvalidArgument when `group` is no multicast address, kSystem with each
  /// interface and its reason when none of them can be joined.
  MulticastSocket(const Address& group, const std::vector<Interface>& interfaces);

  /// To be watched for POLLIN.
  [[nodiscard]] int fd() const { return fd_.get(); }

  /// On every interface that was joined. Throws Error(kSystem), as the constructor does, when none
  /// takes it.
  void send(std::span<const std::byte> bytes);

  struct Packet {
    std::vector<std::byte> bytes;
    Address from;
    unsigned interface;  ///< Of this machine, through which it came.
  };

  /// The next packet that came, if any; a packet's end beyond 64 KiB is lost.
  [[nodiscard]] std::optional<Packet> receive();

 private:
  struct Way {
    unsigned interface;
    std::string name;
    Address address;  // Of this machine, of the group's family.
  };

  void join(const std::vector<Interface>& interfaces);

  Address group_;
  Fd fd_;
  std::vector<Way> ways_;
};

}  // namespace unisono::net
