#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/fd.h"
#include "unisono/net/address.h"
#include "unisono/net/host.h"

namespace unisono::net {

/// A UDP socket that is a member of a multicast group. A packet reaches all members, including
/// members on the same machine.
///
/// Nonblocking, close-on-exec, not shared with children of fork(). Not thread-safe.
class MulticastSocket {
 public:
  /// Joins the group on all interfaces that are up and have an address of the group's family.
  ///
  /// Throws Error: kInvalidArgument if `group` is not a multicast address or is link-local without
  /// an interface, kSystem with the reason for each interface if no join succeeds.
  MulticastSocket(const Address& group, const std::vector<Interface>& interfaces);

  /// Returns the descriptor, to be watched for POLLIN.
  [[nodiscard]] int fd() const { return fd_.get(); }

  /// Sends a packet on every joined interface. Throws Error(kSystem) with the reason for each
  /// interface if all of them fail.
  void send(std::span<const std::byte> bytes);

  struct Packet {
    std::vector<std::byte> bytes;
    Address from;
    unsigned interface;  ///< Interface of this machine that received the packet.
  };

  /// Returns the next packet, std::nullopt if none has arrived. Truncates a packet to 64 KiB.
  [[nodiscard]] std::optional<Packet> receive();

 private:
  struct Way {
    unsigned interface;
    std::string name;
    Address address;  // Address of this machine in the group's family.
  };

  void join(const std::vector<Interface>& interfaces);

  Address group_;
  Fd fd_;
  std::vector<Way> ways_;
};

}  // namespace unisono::net
