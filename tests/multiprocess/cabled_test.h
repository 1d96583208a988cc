#pragma once

#include <string>
#include <vector>

#include "multiprocess/cabled_namespaces.h"
#include "multiprocess/network_namespaces.h"
#include "multiprocess/spawn.h"

namespace unisono::test {

/// Of ranks in two namespaces with cables between them.
class CabledTest : public NetworkTest<CabledNamespaces> {
 protected:
  /// Starts `program` in both, as rank 0 and 1 of a job, which meet through the first cable.
  static void start_ranks(Processes& processes,
                          const std::string& program,
                          const std::vector<std::string>& mode,
                          const Variables& settings = {});
};

}  // namespace unisono::test
