#pragma once

#include <string>
#include <vector>

#include "processes/cabled_namespaces.h"
#include "processes/network_namespaces.h"
#include "processes/spawn.h"

namespace unisono::test {

/// Fixture for tests of ranks in two namespaces that are connected by cables.
class CabledTest : public NetworkTest<CabledNamespaces> {
 protected:
  /// Starts `program` in both namespaces as rank 0 and rank 1 of a job that meets through the first
  /// cable.
  static void start_ranks(Processes& processes,
                          const std::string& program,
                          const std::vector<std::string>& mode,
                          const Variables& settings = {});
};

}  // namespace unisono::test
