#include "processes/bridged_namespaces.h"

#include <string>

#include "processes/network_namespaces.h"

namespace unisono::test {

BridgedNamespaces::BridgedNamespaces() : NetworkNamespaces(kNodes + 1) {
  const std::string hub = name(kNodes);
  make("-n " + hub + " link add bridge type bridge");
  make("-n " + hub + " link set bridge up");
  for (int i = 0; i < kNodes; ++i) {
    const std::string node = name(i);
    const std::string number = std::to_string(i + 1);
    int network = 78;
    for (const std::string device : {"nowhere", "eth0"}) {
      const std::string end = device + number;
      const std::string subnet = std::to_string(network--);
      make("-n " + node + " link add " + device + " type veth peer name " + end + " netns " + hub);
      make("-n " + node + " address add 10.213." + subnet + "." + number + "/24 dev " + device);
      make("-n " + node + " address add fd00:213:" + subnet + "::" + number + "/64 dev " + device +
           " nodad");
      make("-n " + node + " link set " + device + " up");
      make("-n " + hub + " link set " + end + " up" + (device == "eth0" ? " master bridge" : ""));
    }
  }
}

}  // namespace unisono::test
