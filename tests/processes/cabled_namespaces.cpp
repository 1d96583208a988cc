#include "processes/cabled_namespaces.h"

#include <string>

#include "processes/network_namespaces.h"

namespace unisono::test {

CabledNamespaces::CabledNamespaces() : NetworkNamespaces(2) {
  for (const std::string cable : {"first", "second"}) {
    make("link add " + cable + " netns " + name(0) + " type veth peer name " + cable + " netns " +
         name(1));
  }
  for (int i = 0; i < 2; ++i) {
    const std::string end = std::to_string(i + 1);
    make("-n " + name(i) + " address add " + address(i) + "/24 dev first");
    make("-n " + name(i) + " address add 10.213.78." + end + "/24 dev second");
    make("-n " + name(i) + " address add fd00:213::" + end + "/64 dev second nodad");
    for (const std::string device : {"first", "second"}) {
      make("-n " + name(i) + " link set " + device + " up");
    }
  }
}

std::string CabledNamespaces::address(int i) {
  return "10.213.77." + std::to_string(i + 1);
}

std::string CabledNamespaces::cut() {
  for (int i = 0; i < 2; ++i) {
    const std::string problem = ip("-n " + name(i) + " neighbour replace " + address(1 - i) +
                                   " lladdr 02:00:00:00:00:99 dev first nud permanent");
    if (!problem.empty()) {
      return problem;
    }
  }
  return "";
}

std::string CabledNamespaces::filter(const std::string& to) {
  const std::string problem = ip("-n " + name(0) + " route add blackhole " + to);
  return problem.empty() ? ip("-n " + name(1) + " route add " + to + " via " + address(0))
                         : problem;
}

}  // namespace unisono::test
