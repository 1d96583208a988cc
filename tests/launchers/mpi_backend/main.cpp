// A rank of the tests of backend mpi, which mpirun starts. Every rank runs the same tests.
//
// MPI_TEST_NODES=n makes blocks of ranks act as n nodes; MPI_TEST_ENDS: see below.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

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

// mpirun may end the other ranks when a rank ends without MPI_Finalize. So each rank waits until
// all ranks have reported their results. Ranks signal this by files in the folder MPI_TEST_ENDS.
void wait_until_all_have_ended(int rank, int world_size) {
  const std::optional<std::string> folder = unisono::process_environment()("MPI_TEST_ENDS");
  if (!folder) {
    return;
  }
  std::fflush(nullptr);
  std::ofstream(*folder + "/" + std::to_string(rank)).close();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto n_ended = [&] {
    return std::distance(std::filesystem::directory_iterator(*folder),
                         std::filesystem::directory_iterator());
  };
  while (n_ended() < world_size && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace

const std::shared_ptr<unisono::ProcessGroup>& world() {
  // Programs for MPI pass these values: MPI supplies rank and world size.
  static const auto group = unisono::init_process_group(
      {.backend = "mpi", .rank = 0, .world_size = 0, .environment = variable});
  return group;
}

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  try {
    const int rank = world()->rank();
    const int world_size = world()->world_size();
    const int result = RUN_ALL_TESTS();
    unisono::destroy_process_group();
    wait_until_all_have_ended(rank, world_size);
    return result;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mpi_backend: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
