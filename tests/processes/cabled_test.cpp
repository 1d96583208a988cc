#include "processes/cabled_test.h"

#include <string>
#include <vector>

#include "processes/cabled_namespaces.h"
#include "processes/spawn.h"

namespace unisono::test {

void CabledTest::start_ranks(Processes& processes,
                             const std::string& program,
                             const std::vector<std::string>& mode,
                             const Variables& settings) {
  for (int rank = 0; rank < 2; ++rank) {
    Variables variables{{"MASTER_ADDR", CabledNamespaces::address(0)},
                        {"MASTER_PORT", "29500"},
                        {"RANK", std::to_string(rank)},
                        {"WORLD_SIZE", "2"},
                        {"UNISONO_SECRET", "known to both"}};
    variables.insert(settings.begin(), settings.end());
    std::vector<std::string> command{"ip", "netns", "exec", CabledNamespaces::name(rank), program};
    command.insert(command.end(), mode.begin(), mode.end());
    (void)processes.start(command, variables);
  }
}

}  // namespace unisono::test
