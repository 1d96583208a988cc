#include "processes/network_namespaces.h"

#include <unistd.h>

#include <string>
#include <vector>

#include "processes/spawn.h"

namespace unisono::test {

NetworkNamespaces::NetworkNamespaces(int count) : count_(count) {
  for (int i = 0; i < count_; ++i) {
    make("netns add " + name(i));
    make("-n " + name(i) + " link set lo up");
  }
}

NetworkNamespaces::~NetworkNamespaces() {
  for (int i = 0; i < count_; ++i) {
    (void)ip("netns del " + name(i));
  }
}

std::string NetworkNamespaces::name(int i) {
  return "unisono-test-" + std::to_string(::getpid()) + static_cast<char>('a' + i);
}

std::string NetworkNamespaces::ip(const std::string& arguments) {
  Processes processes;
  (void)processes.start({"sh", "-c", "ip " + arguments});
  const std::vector<ProcessResult> results = processes.finish();
  return results[0].exit_code == 0 ? "" : "ip " + arguments + ": " + results[0].err;
}

void NetworkNamespaces::make(const std::string& arguments) {
  if (problem_.empty()) {
    problem_ = ip(arguments);
  }
}

}  // namespace unisono::test
