// A store's server, or many clients in one process.
//
//   rendezvous_load serve              prints the port, serves until stdin ends
//   rendezvous_load hold PORT CLIENTS  connects the clients one after the other and prints a
//                                      line; then each client sets and gets a value per line of
//                                      stdin, and the program answers with a line
//   rendezvous_load meet PORT FIRST COUNT WORLD_SIZE
//                                      prints a line; at a line of stdin, ranks FIRST to
//                                      FIRST + COUNT connect and meet, one thread each. Prints
//                                      when the last rank was connected and had the roster, in
//                                      seconds since that line, the largest number of requests
//                                      of a rank, and the CPU seconds.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <latch>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/net/address.h"
#include "unisono/rendezvous/roster/exchange_roster.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/store/tcp_store.h"
#include "unisono/store/testing/counting_store.h"

namespace unisono::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kSecret = "secret";

Deadline soon() {
  return Deadline::after(std::chrono::seconds(120));
}

store::TcpStoreOptions client_options(const std::string& port) {
  return {.host = "127.0.0.1",
          .port = static_cast<std::uint16_t>(std::stoi(port)),
          .secret = kSecret,
          .io_timeout = std::chrono::seconds(120)};
}

bool read_line() {
  std::string line;
  return static_cast<bool>(std::getline(std::cin, line));
}

template <class... Values>
void print(const char* format, Values... values) {
  std::printf(format, values...);
  std::fflush(stdout);
}

void serve() {
  const store::TcpStoreHost host(
      {.address = *net::Address::parse("127.0.0.1", 0), .secret = kSecret});
  print("%d\n", host.address().port());
  while (read_line()) {
  }
}

void hold(const std::string& port, int n_clients) {
  std::vector<std::unique_ptr<store::TcpStore>> clients;
  for (int i = 0; i < n_clients; ++i) {
    clients.push_back(std::make_unique<store::TcpStore>(client_options(port), soon()));
  }
  print("connected\n");
  while (read_line()) {
    for (std::size_t i = 0; i < clients.size(); ++i) {
      const std::string key = std::to_string(::getpid()) + "/" + std::to_string(i);
      clients[i]->set(key, "12345678");
      if (clients[i]->get(key, soon()) != "12345678") {
        throw std::runtime_error("a wrong value");
      }
    }
    print("used\n");
  }
}

double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

// Returns the entry of a rank, with names as long as those of a cluster.
rendezvous::RosterMember member(int rank, int world_size) {
  return {.rank = rank,
          .world_size = world_size,
          .host = "worker-" + std::to_string(rank / 8) + ".job.cluster.local",
          .pid = 1000 + rank,
          .node = "4b2e9e5e-6a3c-4c8e-9f5e-0123456789ab/4026531840/" + std::to_string(rank / 8),
          .address = "10.0.1.2",
          .port = 40000,
          .endpoint = "unisono-" + std::to_string(1000 + rank) + "-0123456789abcdef"};
}

struct Times {
  Clock::time_point connected;
  Clock::time_point met;
  int n_requests = 0;
};

Times meet_as(const std::string& port, int rank, int world_size) {
  Times times;
  store::TcpStoreOptions options = client_options(port);
  options.rank = rank;
  store::TcpStore store(options, soon());
  times.connected = Clock::now();
  store::testing::CountingStore counting(store);
  const rendezvous::Roster roster =
      rendezvous::exchange_roster(counting, member(rank, world_size), soon());
  times.met = Clock::now();
  times.n_requests = counting.n_requests();
  if (roster.world_size() != world_size) {
    throw std::runtime_error("a wrong roster");
  }
  return times;
}

void meet(const std::string& port, int first, int count, int world_size) {
  std::latch go(1);
  std::vector<Times> times(static_cast<std::size_t>(count));
  std::vector<std::thread> ranks;
  for (int i = 0; i < count; ++i) {
    ranks.emplace_back([&, i] {
      go.wait();
      times[static_cast<std::size_t>(i)] = meet_as(port, first + i, world_size);
    });
  }
  print("ready\n");
  read_line();
  const Clock::time_point start = Clock::now();
  const double cpu_before = cpu_seconds();
  go.count_down();
  for (std::thread& rank : ranks) {
    rank.join();
  }
  std::chrono::duration<double> connected{};
  std::chrono::duration<double> met{};
  int n_requests = 0;
  for (const Times& of_rank : times) {
    connected = std::max<std::chrono::duration<double>>(connected, of_rank.connected - start);
    met = std::max<std::chrono::duration<double>>(met, of_rank.met - start);
    n_requests = std::max(n_requests, of_rank.n_requests);
  }
  print("%.4f %.4f %d %.4f\n",
        connected.count(),
        met.count(),
        n_requests,
        cpu_seconds() - cpu_before);
}

void run(const std::vector<std::string>& arguments) {
  const std::string mode = arguments.empty() ? "" : arguments[0];
  if (mode == "serve" && arguments.size() == 1) {
    serve();
  } else if (mode == "hold" && arguments.size() == 3) {
    hold(arguments[1], std::stoi(arguments[2]));
  } else if (mode == "meet" && arguments.size() == 5) {
    meet(arguments[1], std::stoi(arguments[2]), std::stoi(arguments[3]), std::stoi(arguments[4]));
  } else {
    throw std::invalid_argument(
        "usage: serve | hold PORT CLIENTS | meet PORT FIRST COUNT WORLD_SIZE");
  }
}

}  // namespace
}  // namespace unisono::bench

int main(int argc, char** argv) {
  try {
    unisono::bench::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rendezvous_load: %s\n", error.what());
    return 1;
  }
}
