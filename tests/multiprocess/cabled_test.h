#pragma once

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "multiprocess/cabled_namespaces.h"
#include "multiprocess/spawn.h"

namespace unisono::test {

/// Of ranks in namespaces of their own. Skips where none can be made.
class CabledTest : public ::testing::Test {
 protected:
  void SetUp() override;

  /// Starts `program` in both, as rank 0 and 1 of a job, which meet through the first cable.
  static void start_ranks(Processes& processes,
                          const std::string& program,
                          const std::vector<std::string>& mode,
                          const Variables& settings = {});

 private:
  std::optional<CabledNamespaces> namespaces_;
};

}  // namespace unisono::test
