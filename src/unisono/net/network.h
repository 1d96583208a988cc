#pragma once

#include <netinet/in.h>

#include <optional>
#include <string>

#include "unisono/net/address.h"

namespace unisono::net {

/// A range of IP addresses: those that begin with the same bits.
class Network {
 public:
  /// "10.0.0.0/8", "fd00::/16", or one address. Nothing when it is none of these, or has bits
  /// behind its prefix ("10.1.2.3/8").
  [[nodiscard]] static std::optional<Network> parse(const std::string& text);

  /// An IPv4 address is in an IPv4 network also in its IPv6 form ("::ffff:10.0.0.1").
  [[nodiscard]] bool contains(const Address& address) const;

 private:
  Network(const in6_addr& first, int n_bits) : first_(first), n_bits_(n_bits) {}

  in6_addr first_;
  int n_bits_;
};

}  // namespace unisono::net
