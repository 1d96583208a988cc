#pragma once

#include "multiprocess/network_namespaces.h"

namespace unisono::test {

/// Three network namespaces, "nodes", and a fourth with a bridge that joins their eth0s, which have
/// 10.213.77.1 to .3 and fd00:213:77::1 to ::3. Each has another interface before that one, with
/// 10.213.78.1 to .3 and fd00:213:78::1 to ::3, which is up and leads nowhere.
class BridgedNamespaces : public NetworkNamespaces {
 public:
  static constexpr int kNodes = 3;

  BridgedNamespaces();
};

}  // namespace unisono::test
