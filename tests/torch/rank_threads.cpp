#include "rank_threads.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/comm/process_group.h"

namespace unisono::testing {
namespace {

std::uint16_t free_port() {
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (::bind(socket.get(), any, size) != 0 || ::getsockname(socket.get(), any, &size) != 0) {
    throw Error(ErrorCode::kSystem, "no free port");
  }
  return ntohs(address.sin_port);
}

Environment environment_of(int rank, int world_size, std::uint16_t port) {
  const std::map<std::string, std::string> variables{
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", std::to_string(port)},
      {"RANK", std::to_string(rank)},
      {"WORLD_SIZE", std::to_string(world_size)},
      {"LOCAL_RANK", std::to_string(rank)},
  };
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

}  // namespace

void run_ranks(int world_size, const std::function<void(std::shared_ptr<ProcessGroup>)>& body) {
  const std::uint16_t port = free_port();
  std::mutex mutex;
  std::exception_ptr first;
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < world_size; ++rank) {
      threads.emplace_back([&, rank] {
        at::set_num_threads(1);
        std::shared_ptr<ProcessGroup> group;
        try {
          group = create_process_group({.timeout = std::chrono::seconds(30),
                                        .environment = environment_of(rank, world_size, port)});
          body(group);
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (!first) {
            first = std::current_exception();
          }
        }
        if (group) {
          group->destroy();
        }
      });
    }
  }
  if (first) {
    std::rethrow_exception(first);
  }
}

}  // namespace unisono::testing
