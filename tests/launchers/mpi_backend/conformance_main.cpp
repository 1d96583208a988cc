// The suites of tests/conformance for backend mpi: a rank that mpirun starts. All ranks run the
// same tests.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <span>

#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/comm/process_group.h"

#include "everyone.h"
#include "support/ranks.h"

namespace unisono::test {

ProcessGroup& everyone() {
  // Programs for MPI pass these values: MPI supplies rank and world size.
  static const std::shared_ptr<ProcessGroup> group =
      create_process_group({.rank = 0, .world_size = 0});
  return *group;
}

namespace {

// Only one rank prints, because lines of several ranks may mix.
void report_passed() {
  std::int64_t n_passed = ::testing::UnitTest::GetInstance()->successful_test_count();
  const Buffer buffer = as_buffer(std::span(&n_passed, 1));
  everyone().all_reduce(buffer, {.op = kMin});
  if (everyone().rank() == 0) {
    std::printf("passed on every rank: %d\n", static_cast<int>(n_passed));
  }
}

}  // namespace
}  // namespace unisono::test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  try {
    (void)unisono::test::everyone();
    // MPI_Init() needs all ranks, and the first test may use only two.
    unisono::test::run_ranks(unisono::test::one_node(unisono::test::everyone().world_size()),
                             [](unisono::ProcessGroup& /*group*/) {});
    const int result = RUN_ALL_TESTS();
    unisono::test::report_passed();
    unisono::test::everyone().destroy();
    return result;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mpi_conformance: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
