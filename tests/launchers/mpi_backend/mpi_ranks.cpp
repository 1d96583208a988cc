// The worlds of support/ranks.h with processes as ranks: mpirun has started the processes, which
// all run the same tests. The first processes form a world, and the others wait.

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/config.h"
#include "unisono/comm/objects.h"
#include "unisono/comm/process_group.h"
#include "unisono/net/address.h"
#include "unisono/store/tcp_store.h"

#include "conformance/tested_backend.h"
#include "everyone.h"
#include "support/ranks.h"

namespace unisono::test {
namespace {

constexpr const char* kSecret = "the test's secret";

// Variables by which a process detects the MPI that has started the process.
constexpr std::array<const char*, 3> kOfTheMpi{"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};

// Returns the environment of this rank if the first rank of all serves the store at `port`.
Environment environment_of(const World& world, std::int64_t port) {
  const int rank = everyone().rank();
  std::map<std::string, std::string> variables = world.environment;
  variables.insert({{"MASTER_ADDR", "127.0.0.1"},
                    {"MASTER_PORT", std::to_string(port)},
                    {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                    {"RANK", std::to_string(rank)},
                    {"WORLD_SIZE", std::to_string(world.nodes.size())},
                    {"UNISONO_SECRET", kSecret},
                    {"UNISONO_NODE_ID", world.nodes[static_cast<std::size_t>(rank)]},
                    {"UNISONO_ARENA_BYTES", "1G"}});
  const Environment process = process_environment();
  for (const char* const name : kOfTheMpi) {
    if (const std::optional<std::string> value = process(name)) {
      variables.insert({name, *value});
    }
  }
  if (const auto own = world.own_environment.find(rank); own != world.own_environment.end()) {
    for (const auto& [name, value] : own->second) {
      variables[name] = value;
    }
  }
  return fake_environment(std::move(variables));
}

// Returns the exception of this rank's part; null after success.
std::exception_ptr run_own_rank(const World& world, std::int64_t port, const RankMain& rank_main) {
  try {
    const bool names_none = world.backend == World().backend;
    const std::shared_ptr<ProcessGroup> group =
        create_process_group({.backend = names_none ? tested_backend() : world.backend,
                              .timeout = world.timeout,
                              .environment = environment_of(world, port)});
    rank_main(group);
    group->destroy();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

std::exception_ptr run_if_member(const World& world, const RankMain& rank_main) {
  const bool is_first = everyone().rank() == 0;
  std::optional<store::TcpStoreHost> host;
  std::int64_t port = 0;
  if (is_first) {
    host.emplace(store::TcpServerOptions{.address = net::Address::parse("127.0.0.1", 0).value(),
                                         .secret = kSecret});
    port = host->address().port();
  }
  everyone().broadcast(as_buffer(std::span(&port, 1)));
  std::exception_ptr error;
  if (everyone().rank() < static_cast<int>(world.nodes.size())) {
    error = run_own_rank(world, port, rank_main);
  }
  everyone().barrier();  // Until then a rank may need the store.
  return error;
}

bool has_room_for(const World& world) {
  return static_cast<int>(world.nodes.size()) <= everyone().world_size();
}

void skip(const World& world) {
  GTEST_SKIP() << "takes " << world.nodes.size() << " ranks, of which mpirun has started "
               << everyone().world_size();
}

}  // namespace

void PrintTo(const World& world, std::ostream* out) {
  for (const std::string& node : world.nodes) {
    *out << node;
  }
}

World one_node(int world_size) {
  return {.nodes = std::vector<std::string>(static_cast<std::size_t>(world_size), "node")};
}

Environment fake_environment(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

std::string& default_backend() {
  static std::string name = "mpi";
  return name;
}

void run_sharing_ranks(const World& world, const RankMain& rank_main) {
  if (!has_room_for(world)) {
    return skip(world);
  }
  if (const std::exception_ptr error = run_if_member(world, rank_main)) {
    std::rethrow_exception(error);
  }
}

void run_ranks(const World& world, const std::function<void(ProcessGroup& group)>& rank_main) {
  run_sharing_ranks(world, [&](const std::shared_ptr<ProcessGroup>& group) { rank_main(*group); });
}

std::vector<std::string> errors_of_ranks(
    const World& world, const std::function<void(ProcessGroup& group)>& rank_main) {
  if (!has_room_for(world)) {
    skip(world);
    return std::vector<std::string>(world.nodes.size());
  }
  std::string mine;
  try {
    if (const std::exception_ptr error = run_if_member(
            world, [&](const std::shared_ptr<ProcessGroup>& group) { rank_main(*group); })) {
      std::rethrow_exception(error);
    }
  } catch (const std::exception& exception) {
    mine = exception.what();
  }
  std::vector<std::string> texts = all_gather_object(everyone(), mine);
  texts.resize(world.nodes.size());
  return texts;
}

}  // namespace unisono::test
