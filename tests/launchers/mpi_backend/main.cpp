// A rank of tests of backend mpi, which an mpirun starts: every rank runs the same tests.
//
// MPI_TEST_NODES=n has blocks of ranks act as n nodes.

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "unisono/base/config.h"
#include "unisono/comm/process_group.h"
#include "unisono/rendezvous/find_launch_info.h"

#include "rank.h"

namespace {

std::optional<std::string> variable(const char* name) {
  const unisono::Environment process = unisono::process_environment();
  const std::optional<std::string> n_nodes = process("MPI_TEST_NODES");
  if (!n_nodes || std::string_view(name) != "UNISONO_NODE_ID") {
    return process(name);
  }
  const auto info = unisono::rendezvous::find_launch_info(process);
  return std::to_string(info.rank * std::stoi(*n_nodes) / info.world_size);
}

}  // namespace

const std::shared_ptr<unisono::ProcessGroup>& world() {
  // As programs for MPI give it: both are the MPI's to tell.
  static const auto group = unisono::init_process_group(
      {.backend = "mpi", .rank = 0, .world_size = 0, .environment = variable});
  return group;
}

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  try {
    (void)world();
    const int result = RUN_ALL_TESTS();
    unisono::destroy_process_group();
    return result;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mpi_backend: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
