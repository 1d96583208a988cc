// The suites of tests/conformance for backend mpi: a rank that an mpirun starts, all of which run
// the same tests.

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>

#include <gtest/gtest.h>

#include "unisono/comm/process_group.h"

#include "everyone.h"

namespace unisono::test {

ProcessGroup& everyone() {
  // As programs for MPI give it: both are the MPI's to tell.
  static const std::shared_ptr<ProcessGroup> group =
      create_process_group({.rank = 0, .world_size = 0});
  return *group;
}

}  // namespace unisono::test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  try {
    (void)unisono::test::everyone();
    const int result = RUN_ALL_TESTS();
    unisono::test::everyone().destroy();
    return result;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mpi_conformance: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
