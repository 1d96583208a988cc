// A store's server, or clients that keep a server busy.
//
//   store_load serve LIBRARY                          prints the port, serves until stdin ends
//   store_load drive LIBRARY PORT OP CLIENTS SECONDS  prints the number of operations per second
//   store_load tell LIBRARY PORT HOW CLIENTS SECONDS  prints the latency of changes: median and
//                                                     99th percentile in microseconds
//
// LIBRARY is unisono or torch. OP is get, add, set_get (a set, and a get of the same key that
// confirms the set) or multi_get (of 16 keys). HOW is watch or wait, see latency.h. Each client is
// a thread with its own connection.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "client.h"
#include "latency.h"

namespace unisono::bench {
namespace {

using Clock = std::chrono::steady_clock;

const Library& find_library(const std::string& name) {
  for (const Library* const library : {&kUnisono, &kTorch}) {
    if (name == library->name) {
      return *library;
    }
  }
  throw std::invalid_argument("there is no library " + name);
}

std::function<void(Client&)> find_operation(const std::string& name, const std::string& own_key) {
  if (name == "get") {
    return [](Client& client) { client.get("common"); };
  }
  if (name == "add") {
    return [own_key](Client& client) { client.add(own_key); };
  }
  if (name == "set_get") {
    return [own_key](Client& client) {
      client.set(own_key, "12345678");
      client.get(own_key);
    };
  }
  if (name == "multi_get") {
    return [](Client& client) { client.multi_get(std::vector<std::string>(16, "common")); };
  }
  throw std::invalid_argument("there is no operation " + name);
}

int serve(const Library& library) {
  const std::unique_ptr<Server> server = library.serve();
  std::printf("%d\n", server->port());
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return 0;
}

double operations_per_second(const Library& library,
                             std::uint16_t port,
                             const std::string& operation,
                             int n_clients,
                             double seconds) {
  library.connect(port)->set("common", "12345678");
  std::vector<std::unique_ptr<Client>> clients;
  for (int index = 0; index < n_clients; ++index) {
    clients.push_back(library.connect(port));
  }
  std::atomic<bool> is_over = false;
  std::atomic<std::int64_t> n_done = 0;
  std::vector<std::thread> threads;
  const Clock::time_point start = Clock::now();
  for (int index = 0; index < n_clients; ++index) {
    threads.emplace_back([&, index] {
      const auto run = find_operation(operation, "key/" + std::to_string(index));
      std::int64_t n = 0;
      for (; !is_over; ++n) {
        run(*clients[static_cast<std::size_t>(index)]);
      }
      n_done += n;
    });
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  is_over = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
  return static_cast<double>(n_done) / std::chrono::duration<double>(Clock::now() - start).count();
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() == 2 && arguments[0] == "serve") {
    return serve(find_library(arguments[1]));
  }
  if (arguments.size() == 6 && arguments[0] == "drive") {
    (void)find_operation(arguments[3], "");
    std::printf("%.0f\n",
                operations_per_second(find_library(arguments[1]),
                                      static_cast<std::uint16_t>(std::stoi(arguments[2])),
                                      arguments[3],
                                      std::stoi(arguments[4]),
                                      std::stod(arguments[5])));
    return 0;
  }
  const bool is_tell = arguments.size() == 6 && arguments[0] == "tell";
  if (is_tell && (arguments[3] == "watch" || arguments[3] == "wait")) {
    const Latency found = latency(find_library(arguments[1]),
                                  static_cast<std::uint16_t>(std::stoi(arguments[2])),
                                  arguments[3],
                                  std::stoi(arguments[4]),
                                  std::stod(arguments[5]));
    std::printf("%.1f %.1f\n", found.median, found.p99);
    return 0;
  }
  throw std::invalid_argument(
      "usage: serve LIBRARY | drive LIBRARY PORT OP CLIENTS SECONDS | "
      "tell LIBRARY PORT watch|wait CLIENTS SECONDS");
}

}  // namespace
}  // namespace unisono::bench

int main(int argc, char** argv) {
  try {
    return unisono::bench::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "store_load: %s\n", error.what());
    return 1;
  }
}
