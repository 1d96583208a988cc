#include "multiprocess/cabled_namespaces.h"

#include <unistd.h>

#include <string>
#include <vector>

#include "multiprocess/spawn.h"

namespace unisono::test {

std::string ip(const std::string& arguments) {
  Processes processes;
  (void)processes.start({"sh", "-c", "ip " + arguments});
  const std::vector<ProcessResult> results = processes.finish();
  return results[0].exit_code == 0 ? "" : "ip " + arguments + ": " + results[0].err;
}

CabledNamespaces::CabledNamespaces() {
  add("netns add " + name(0));
  add("netns add " + name(1));
  for (const std::string cable : {"first", "second"}) {
    add("link add " + cable + " netns " + name(0) + " type veth peer name " + cable + " netns " +
        name(1));
  }
  for (int i = 0; i < 2; ++i) {
    const std::string end = std::to_string(i + 1);
    add("-n " + name(i) + " address add " + address(i) + "/24 dev first");
    add("-n " + name(i) + " address add 10.213.78." + end + "/24 dev second");
    add("-n " + name(i) + " address add fd00:213::" + end + "/64 dev second nodad");
    for (const std::string device : {"first", "second", "lo"}) {
      add("-n " + name(i) + " link set " + device + " up");
    }
  }
}

CabledNamespaces::~CabledNamespaces() {
  (void)ip("netns del " + name(0));
  (void)ip("netns del " + name(1));
}

std::string CabledNamespaces::name(int i) {
  return "unisono-test-" + std::to_string(::getpid()) + (i == 0 ? "a" : "b");
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

void CabledNamespaces::add(const std::string& arguments) {
  if (problem_.empty()) {
    problem_ = ip(arguments);
  }
}

}  // namespace unisono::test
