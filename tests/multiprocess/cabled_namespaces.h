#pragma once

#include <string>

#include "multiprocess/network_namespaces.h"

namespace unisono::test {

/// Two network namespaces with two cables between them; at the ends of the first are 10.213.77.1
/// and .2, of the second 10.213.78.1 and .2 and fd00:213::1 and ::2.
class CabledNamespaces : public NetworkNamespaces {
 public:
  CabledNamespaces();

  /// The end of the first cable.
  [[nodiscard]] static std::string address(int i);

  /// From now on what goes through the first cable is lost, in both directions, and nobody is told:
  /// each end sends it to a device that is not there. "" after success.
  [[nodiscard]] static std::string cut();

  /// From now on what the second sends to this address is dropped on its way through the first, as
  /// by a firewall. "" after success.
  [[nodiscard]] static std::string filter(const std::string& address);
};

}  // namespace unisono::test
