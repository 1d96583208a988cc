#pragma once

#include "processes/network_namespaces.h"

namespace unisono::test {

/// Three network namespaces ("nodes") and a fourth namespace with a bridge that connects the eth0
/// interfaces of the nodes. The eth0 addresses are 10.213.77.1 to .3 and fd00:213:77::1 to ::3.
/// Before eth0, each node has another interface, which is up but has no peer, with the addresses
/// 10.213.78.1 to .3 and fd00:213:78::1 to ::3.
class BridgedNamespaces : public NetworkNamespaces {
 public:
  static constexpr int kNodes = 3;

  BridgedNamespaces();
};

}  // namespace unisono::test
