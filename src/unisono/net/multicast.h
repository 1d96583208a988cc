#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/fd.h"
#include "unisono/net/address.h"

namespace unisono::net {

/// A UDP socket that belongs to a multicast group: what one member sends comes to all, on this
/// machine, too. Nonblocking, close-on-exec, not shared with children of fork(). Not thread-safe.
class MulticastSocket {
 public:
  /// Joins on loopback alone, or on all other interfaces that are up (on loopback if there are
  /// none).
  ///
  /// Throws Error: kInvalidArgument when `group` is no multicast address, kSystem with each
  /// interface and its reason when none of them can be joined.
  MulticastSocket(const Address& group, bool loopback_only);

  /// To be watched for POLLIN.
  [[nodiscard]] int fd() const { return fd_.get(); }

  /// On every interface that was joined. Throws Error(kSystem), as the constructor does, when none
  /// takes it.
  void send(std::span<const std::byte> bytes);

  struct Packet {
    std::vector<std::byte> bytes;
    Address from;
  };

  /// The next packet that came, if any; a packet's end beyond 64 KiB is lost.
  [[nodiscard]] std::optional<Packet> receive();

 private:
  struct Interface {
    unsigned index;
    std::string name;
    Address address;  // One of its own, of the group's family.
  };

  void join(bool loopback_only);
  [[nodiscard]] static std::vector<Interface> find_interfaces(int family, bool loopback_only);

  Address group_;
  Fd fd_;
  std::vector<Interface> interfaces_;
};

}  // namespace unisono::net
