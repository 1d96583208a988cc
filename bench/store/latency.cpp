#include "latency.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <semaphore>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "client.h"

namespace unisono::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Long enough for all clients to wait for the next key.
constexpr std::chrono::milliseconds kPause{10};

using Clients = std::vector<std::unique_ptr<Client>>;

// Records the time when the last client has received an event.
class Arrivals {
 public:
  explicit Arrivals(std::size_t n) : n_(n), n_left_(n) {}

  void come() {
    if (--n_left_ == 0) {
      last_ = Clock::now();
      n_left_ = n_;
      all_.release();
    }
  }

  [[nodiscard]] Clock::time_point wait_for_all() {
    all_.acquire();
    return last_;
  }

 private:
  std::size_t n_;
  std::atomic<std::size_t> n_left_;
  Clock::time_point last_;
  std::binary_semaphore all_{0};
};

Clients connect(const Library& library, std::uint16_t port, int n_clients) {
  Clients clients;
  for (int index = 0; index < n_clients; ++index) {
    clients.push_back(library.connect(port));
  }
  return clients;
}

// Returns the time of each round, from just before `set` until all clients have received the value.
std::vector<double> time_rounds(int n_rounds,
                                Arrivals& arrivals,
                                const std::function<void(int round)>& set) {
  std::vector<double> times;
  for (int round = 0; round < n_rounds; ++round) {
    std::this_thread::sleep_for(kPause);
    const Clock::time_point start = Clock::now();
    set(round);
    const std::chrono::duration<double, std::micro> time = arrivals.wait_for_all() - start;
    times.push_back(time.count());
  }
  return times;
}

// Returns a value of eight bytes.
std::string value_of(int round) {
  return std::to_string(10'000'000 + round);
}

std::vector<double> time_watch(Clients& watchers, Client& setter, int n_rounds) {
  const std::string key = "watched/" + std::to_string(::getpid());
  Arrivals arrivals(watchers.size());
  std::atomic<int> round = 0;
  std::atomic<bool> is_wrong = false;
  setter.set(key, value_of(-1));
  for (const auto& watcher : watchers) {
    watcher->watch(key, [&](const std::string& before, const std::string& after) {
      if (before != value_of(round - 1) || after != value_of(round)) {
        is_wrong = true;
      }
      arrivals.come();
    });
  }
  std::vector<double> times = time_rounds(n_rounds, arrivals, [&](int next) {
    round = next;
    setter.set(key, value_of(next));
  });
  watchers.clear();
  if (is_wrong) {
    throw std::runtime_error("a watcher was called with other values than those that were set");
  }
  return times;
}

std::vector<double> time_wait(Clients& waiters, Client& setter, int n_rounds) {
  const auto key_of = [](int round) {
    return "awaited/" + std::to_string(::getpid()) + "/" + std::to_string(round);
  };
  Arrivals arrivals(waiters.size());
  std::vector<std::jthread> threads;
  for (const auto& waiter : waiters) {
    threads.emplace_back([&] {
      for (int round = 0; round < n_rounds; ++round) {
        waiter->wait(key_of(round));
        arrivals.come();
      }
    });
  }
  return time_rounds(
      n_rounds, arrivals, [&](int round) { setter.set(key_of(round), value_of(round)); });
}

}  // namespace

Latency latency(const Library& library,
                std::uint16_t port,
                const std::string& operation,
                int n_clients,
                double seconds) {
  Clients clients = connect(library, port, n_clients);
  const std::unique_ptr<Client> setter = library.connect(port);
  const int n_rounds =
      std::max(1, static_cast<int>(seconds / std::chrono::duration<double>(kPause).count()));
  std::vector<double> times = operation == "watch" ? time_watch(clients, *setter, n_rounds)
                                                   : time_wait(clients, *setter, n_rounds);
  std::sort(times.begin(), times.end());
  return {.median = times[times.size() / 2], .p99 = times[times.size() * 99 / 100]};
}

}  // namespace unisono::bench
