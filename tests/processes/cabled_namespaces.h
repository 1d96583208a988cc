#pragma once

#include <string>

#include "processes/network_namespaces.h"

namespace unisono::test {

/// Two network namespaces with two cables between them. The first cable has the addresses
/// 10.213.77.1 and .2. The second cable has the addresses 10.213.78.1, 10.213.78.2, fd00:213::1 and
/// fd00:213::2.
class CabledNamespaces : public NetworkNamespaces {
 public:
  CabledNamespaces();

  /// Returns the address of namespace `i` on the first cable.
  [[nodiscard]] static std::string address(int i);

  /// Drops all further traffic of the first cable in both directions without an error at either
  /// end: each end sends packets to a device that does not exist. Returns "" after success.
  [[nodiscard]] static std::string cut();

  /// Drops all further packets from the second namespace to this address on the first cable, as a
  /// firewall does. Returns "" after success.
  [[nodiscard]] static std::string filter(const std::string& address);
};

}  // namespace unisono::test
