#include "support/ranks.h"

#include <cstddef>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "unisono/net/address.h"
#include "unisono/store/tcp_store.h"

namespace unisono::test {
namespace {

constexpr const char* kSecret = "the test's secret";

std::vector<std::exception_ptr> start_ranks(const World& world, const RankMain& rank_main) {
  // The test serves the store as a launcher does, so no rank needs a port in advance.
  const store::TcpStoreHost host(
      {.address = net::Address::parse("127.0.0.1", 0).value(), .secret = kSecret});
  std::vector<std::exception_ptr> errors(world.nodes.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < world.nodes.size(); ++rank) {
    threads.emplace_back([&, rank] {
      std::map<std::string, std::string> variables = world.environment;
      variables.insert({{"MASTER_ADDR", "127.0.0.1"},
                        {"MASTER_PORT", std::to_string(host.address().port())},
                        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                        {"RANK", std::to_string(rank)},
                        {"WORLD_SIZE", std::to_string(world.nodes.size())},
                        {"UNISONO_SECRET", kSecret},
                        {"UNISONO_NODE_ID", world.nodes[rank]},
                        {"UNISONO_ARENA_BYTES", "1G"}});
      if (const auto transport = process_environment()("UNISONO_TRANSPORT")) {
        variables.insert({"UNISONO_TRANSPORT", *transport});
      }
      if (const auto own = world.own_environment.find(static_cast<int>(rank));
          own != world.own_environment.end()) {
        for (const auto& [name, value] : own->second) {
          variables[name] = value;
        }
      }
      const auto own_backend = world.own_backend.find(static_cast<int>(rank));
      try {
        const std::shared_ptr<ProcessGroup> group = create_process_group(
            {.backend =
                 own_backend == world.own_backend.end() ? world.backend : own_backend->second,
             .timeout = world.timeout,
             .environment = fake_environment(variables)});
        rank_main(group);
        group->destroy();
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return errors;
}

}  // namespace

std::string& default_backend() {
  static std::string name = "unisono";
  return name;
}

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

void run_sharing_ranks(const World& world, const RankMain& rank_main) {
  for (const std::exception_ptr& error : start_ranks(world, rank_main)) {
    if (error) {
      std::rethrow_exception(error);
    }
  }
}

void run_ranks(const World& world, const std::function<void(ProcessGroup& group)>& rank_main) {
  run_sharing_ranks(world, [&](const std::shared_ptr<ProcessGroup>& group) { rank_main(*group); });
}

std::vector<std::string> errors_of_ranks(
    const World& world, const std::function<void(ProcessGroup& group)>& rank_main) {
  std::vector<std::string> texts;
  const auto on_rank = [&](const std::shared_ptr<ProcessGroup>& group) { rank_main(*group); };
  for (const std::exception_ptr& error : start_ranks(world, on_rank)) {
    std::string text;
    try {
      if (error) {
        std::rethrow_exception(error);
      }
    } catch (const std::exception& exception) {
      text = exception.what();
    }
    texts.push_back(text);
  }
  return texts;
}

}  // namespace unisono::test
