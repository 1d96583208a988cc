// One rank of the multi-process tests: rank_program MODE [ARGUMENT]. The environment defines its
// rank and job.

#include <poll.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <latch>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"
#include "unisono/net/unix_socket.h"
#include "unisono/store/tcp_store.h"
#include "unisono/transport/rank_table.h"

#include "support/process.h"

namespace {

using unisono::ProcessGroup;
using unisono::test::n_entries;
using unisono::test::print;
using unisono::test::seconds_of;
using unisono::test::wait_for_end_of_stdin;

bool maps_a_file_of_dev_shm() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/dev/shm/") != std::string::npos) {
      return true;
    }
  }
  return false;
}

bool is_stdin_closed() {
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  return ::poll(&input, 1, 0) == 1;
}

float sum_of_ones(ProcessGroup& group, std::size_t count) {
  std::vector<float> values(count, 1.0F);
  group.all_reduce(unisono::as_buffer(std::span(values)));
  for (const float value : values) {
    if (value != values[0]) {
      return -1;
    }
  }
  return values[0];
}

// Prints its rank after the rendezvous by `method`, which is env:// by default.
void hello(const std::string& method) {
  const auto group =
      unisono::init_process_group({.init_method = method.empty() ? "env://" : method});
  print("(%d,%d) local (%d,%d) all_reduce(ones)=%g\n",
        group->rank(),
        group->world_size(),
        group->local_rank(),
        group->local_world_size(),
        static_cast<double>(sum_of_ones(*group, 4)));
  unisono::destroy_process_group();
}

// Sums of all sizes up to 16 Mi elements.
void sizes(const std::string&) {
  const auto group = unisono::init_process_group();
  for (std::size_t count = 1; count <= 1U << 24U; count *= 4) {
    print("%zu: %g\n", count, static_cast<double>(sum_of_ones(*group, count)));
  }
  unisono::destroy_process_group();
}

// A broadcast from each rank with bits that differ between roots.
void broadcasts(const std::string&) {
  const auto group = unisono::init_process_group();
  for (int root = 0; root < group->world_size(); ++root) {
    std::vector<std::uint32_t> bits(1000);
    std::uint32_t state = 17U * static_cast<std::uint32_t>(group->rank() + 1);
    for (std::uint32_t& word : bits) {
      state = state * 1664525U + 1013904223U;
      word = state;
    }
    group->broadcast(unisono::as_buffer(std::span(bits)), {.root = root});
    std::uint64_t hash = 14695981039346656037U;
    for (const std::uint32_t word : bits) {
      hash = (hash ^ word) * 1099511628211U;
    }
    print("root %d: %016llx\n", root, static_cast<unsigned long long>(hash));
  }
  unisono::destroy_process_group();
}

// Forks a child that holds open all shared resources of this process until the child is killed or
// half a minute has passed.
void fork_a_child() {
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(STDIN_FILENO);
    ::close(STDOUT_FILENO);
    ::close(STDERR_FILENO);
    ::alarm(30);
    ::pause();
    ::_exit(0);
  }
  print("child %d\n", static_cast<int>(child));
}

// All-reduces of a MiB until any rank's stdin is closed.
void stream(const std::string& memory) {
  const auto group = unisono::init_process_group();
  constexpr std::int64_t kCount = 1 << 18;
  std::vector<float> own(static_cast<std::size_t>(kCount));
  const unisono::Buffer buffer = memory == "symmetric"
                                     ? group->allocate(kCount, unisono::DType::kFloat32)
                                     : unisono::as_buffer(std::span(own));
  auto* const values = static_cast<float*>(buffer.data);
  print("data port %d\n", static_cast<int>(group->roster().self().address.port()));
  for (int n = 0;; ++n) {
    values[0] = is_stdin_closed() ? 1.0F : 0.0F;
    values[kCount - 1] = 1.0F;
    group->all_reduce(buffer);
    if (values[kCount - 1] != static_cast<float>(group->world_size())) {
      throw std::runtime_error("a wrong sum");
    }
    if (n == 10) {
      if (memory == "with a child") {
        fork_a_child();
      }
      print("streaming\n");
    }
    if (values[0] != 0) {
      break;
    }
  }
  unisono::destroy_process_group();
  print("done\n");
}

// All ranks except `absent` wait for that rank in a barrier with a timeout of one second.
void absence(const std::string& absent) {
  const auto group = unisono::init_process_group();
  if (group->rank() == std::stoi(absent)) {
    wait_for_end_of_stdin();
    return;
  }
  group->barrier({.timeout = std::chrono::milliseconds(1000)});
}

// Returns the header of a datagram between ranks of a node: the key, which follows the magic and
// the number of ranks in the node's memory, and the sender.
std::string node_envelope(int rank) {
  constexpr std::size_t kKeyAt = 16;
  constexpr std::size_t kKeyBytes = 16;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("unisono-arena") != std::string::npos) {
      // NOLINTNEXTLINE(performance-no-int-to-ptr): the kernel writes addresses as text
      const auto* const memory = reinterpret_cast<const char*>(std::stoull(line, nullptr, 16));
      return std::string(memory + kKeyAt, kKeyBytes) +
             std::string(reinterpret_cast<const char*>(&rank), sizeof(rank));
    }
  }
  throw std::runtime_error("no memory of a node");
}

// Sends an invalid datagram to all ranks of the node.
void send_junk(const ProcessGroup& group) {
  const std::string junk = node_envelope(group.rank()) + std::string(1000, '?');
  const unisono::Fd socket =
      unisono::net::bind_unix_datagram("unisono-babbler-" + std::to_string(::getpid()));
  for (const unisono::transport::Member& member : group.roster().members) {
    (void)unisono::net::send_datagram(
        socket.get(), member.endpoint + "-post", std::as_bytes(std::span(junk)));
  }
}

// Rank `babbler` sends junk. The other ranks wait for that rank in a barrier.
void babble(const std::string& babbler) {
  const auto group = unisono::init_process_group();
  if (group->rank() == std::stoi(babbler)) {
    send_junk(*group);
    wait_for_end_of_stdin();
    return;
  }
  group->barrier();
}

// Calls a barrier at once (role 'b') or when stdin is closed (role 'w'). If the barrier fails, a
// rank of role 'k' keeps the group until the rank is killed.
void come_to_barrier(ProcessGroup& group, const std::string& roles) {
  const char role = roles.at(static_cast<std::size_t>(group.rank()));
  print("ready\n");
  if (role != 'b') {
    wait_for_end_of_stdin();
  }
  try {
    group.barrier();
  } catch (const std::exception&) {
    if (role == 'k') {
      ::pause();
    }
    throw;
  }
}

void meet(const std::string& roles) {
  come_to_barrier(*unisono::init_process_group(), roles);
}

// A first call with a timeout of one second. Each rank makes the call when its stdin is closed.
void monitored(const std::string& /*unused*/) {
  const auto group = unisono::init_process_group();
  print("ready\n");
  wait_for_end_of_stdin();
  group->monitored_barrier({.timeout = std::chrono::milliseconds(1000)});
}

void meet_with_a_child(const std::string& roles) {
  const auto group = unisono::init_process_group();
  fork_a_child();
  come_to_barrier(*group, roles);
}

// Runs meet() for ranks that have already communicated.
void meet_again(const std::string& roles) {
  const auto group = unisono::init_process_group();
  group->barrier();
  come_to_barrier(*group, roles);
}

// All ranks broadcast a few bytes as their first call when their input ends. Rank 0 is killed
// instead.
void first_broadcast(const std::string& /*unused*/) {
  const auto group = unisono::init_process_group();
  print("ready\n");
  wait_for_end_of_stdin();
  if (group->rank() == 0) {
    ::raise(SIGKILL);
  }
  std::vector<char> bytes(63);
  group->broadcast({.data = bytes.data(), .count = 63, .dtype = unisono::DType::kInt8});
}

// A sum of 16 MiB for ranks that have already communicated. Rank 1 starts at the end of its input.
void late_sum(const std::string& /*unused*/) {
  const auto group = unisono::init_process_group();
  group->barrier();
  if (group->rank() == 1) {
    wait_for_end_of_stdin();
  }
  (void)sum_of_ones(*group, 1U << 22U);
}

// Rank 1 gathers 64 MiB from each rank and starts at the end of its input.
void late_gather(const std::string& /*unused*/) {
  const auto group = unisono::init_process_group();
  const bool is_root = group->rank() == 1;
  std::vector<float> values(1U << 24U, 1.0F);
  std::vector<float> all(is_root ? values.size() * 2 : 0);
  group->barrier();  // Opens the connections.
  if (is_root) {
    wait_for_end_of_stdin();
  }
  group->gather(unisono::as_buffer(std::span(values)),
                is_root ? unisono::as_buffer(std::span(all)) : unisono::Buffer(),
                {.root = 1});
  print("done\n");
  unisono::destroy_process_group();
}

// Rank 0 starts a second after the others. The wait of the others is the subject of the test.
void late(const std::string& operation) {
  const auto group = unisono::init_process_group();
  std::vector<float> values(1000);
  const unisono::Buffer buffer = unisono::as_buffer(std::span(values));
  const std::map<std::string, std::function<void()>> operations{
      {"barrier", [&] { group->barrier(); }},
      {"all_reduce", [&] { group->all_reduce(buffer); }},
      {"all_reduce_async", [&] { group->all_reduce_async(buffer).wait(); }}};
  // The first operation opens connections and starts threads.
  operations.at(operation)();
  if (group->rank() == 0) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  const double entered = seconds_of(CLOCK_MONOTONIC);
  const double used = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
  operations.at(operation)();
  const double cpu_seconds = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - used;
  print("entered %.6f left %.6f cpu %.6f\n", entered, seconds_of(CLOCK_MONOTONIC), cpu_seconds);
  unisono::destroy_process_group();
}

// Waits for a key that is never set, with a client of the program's own.
void wait_in_store(const std::string&) {
  const auto group = unisono::init_process_group();
  const unisono::Environment environment = unisono::process_environment();
  unisono::store::TcpStore store(
      {.host = environment("MASTER_ADDR").value(),
       .port = static_cast<std::uint16_t>(std::stoi(environment("MASTER_PORT").value())),
       .secret = environment("UNISONO_SECRET").value()},
      unisono::Deadline::after(std::chrono::seconds(30)));
  print("waiting\n");
  (void)store.get("never", unisono::Deadline::after(std::chrono::seconds(60)));
}

// Prints the memory of the process after one operation with another rank.
void idle(const std::string&) {
  const auto group = unisono::init_process_group();
  (void)sum_of_ones(*group, 1000);
  std::ifstream memory("/proc/self/smaps_rollup");
  for (std::string line; std::getline(memory, line);) {
    print("%s\n", line.c_str());
  }
  unisono::destroy_process_group();
}

// Prints the system resources of the process after the rendezvous.
void footprint(const std::string&) {
  const auto group = unisono::init_process_group();
  (void)sum_of_ones(*group, 1);
  int n_mappings = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    n_mappings += line.find("unisono-arena") == std::string::npos ? 0 : 1;
  }
  print("%d descriptors, %d mappings\n", n_entries("/proc/self/fd"), n_mappings);
  group->barrier();
  unisono::destroy_process_group();
}

// Rank 1 executes another program. The other ranks wait for rank 1 in a barrier.
void become(const std::string& program) {
  const auto group = unisono::init_process_group();
  group->barrier();
  if (group->rank() == 1) {
    ::execlp(program.c_str(), program.c_str(), "600", nullptr);
  }
  group->barrier();
}

// The kernel lists a thread for a moment after the join.
int n_threads_in_the_end(int expected) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (n_entries("/proc/self/task") > expected && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::yield();
  }
  return n_entries("/proc/self/task");
}

// Returns the number of threads that any program has. A sanitizer adds a thread when the program
// starts its first thread.
int n_threads_at_first() {
  std::latch is_counted(1);
  const std::jthread first([&] { is_counted.wait(); });
  const int n_threads = n_entries("/proc/self/task") - 1;
  is_counted.count_down();
  return n_threads;
}

// Rank 1 makes a different call: an all_reduce of another type, or a gather to another root.
void disagree(const std::string& what) {
  const auto group = unisono::init_process_group();
  const bool is_odd = group->rank() == 1;
  std::vector<float> floats(1000, 1.0F);
  std::vector<std::int32_t> integers(1000, 1);
  std::vector<float> out(1000U * static_cast<std::size_t>(group->world_size()));
  group->barrier();
  print("calling\n");
  if (what == "Roots") {
    const int root = is_odd ? 1 : 0;
    const bool is_root = group->rank() == root;
    group->gather(unisono::as_buffer(std::span(floats)),
                  is_root ? unisono::as_buffer(std::span(out)) : unisono::Buffer(),
                  {.root = root});
  } else if (is_odd) {
    group->all_reduce(unisono::as_buffer(std::span(integers)));
  } else {
    group->all_reduce(unisono::as_buffer(std::span(floats)));
  }
  unisono::destroy_process_group();
}

// Creates one group after the other in one process and prints the resources that remain open.
void again(const std::string&) {
  const int n_threads = n_threads_at_first();
  const int n_descriptors = n_entries("/proc/self/fd");
  for (int round = 0; round < 3; ++round) {
    auto group = unisono::init_process_group();
    group->all_reduce_async(group->allocate(1 << 20, unisono::DType::kFloat32)).wait();
    print("round %d: %g%s\n",
          round,
          static_cast<double>(sum_of_ones(*group, 1 << 20)),
          maps_a_file_of_dev_shm() ? ", maps a file of /dev/shm" : "");
    unisono::destroy_process_group();
    // The group's memory is freed with the last handle.
    group.reset();
    print("left: %d descriptors, %d threads\n",
          n_entries("/proc/self/fd") - n_descriptors,
          n_threads_in_the_end(n_threads) - n_threads);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, void (*)(const std::string&)> modes{
      {"hello", hello},
      {"sizes", sizes},
      {"broadcasts", broadcasts},
      {"stream", stream},
      {"absence", absence},
      {"babble", babble},
      {"become", become},
      {"footprint", footprint},
      {"late", late},
      {"first_broadcast", first_broadcast},
      {"late_sum", late_sum},
      {"late_gather", late_gather},
      {"idle", idle},
      {"meet", meet},
      {"meet_with_a_child", meet_with_a_child},
      {"monitored", monitored},
      {"meet_again", meet_again},
      {"wait_in_store", wait_in_store},
      {"disagree", disagree},
      {"again", again}};
  try {
    modes.at(argc > 1 ? argv[1] : "")(argc > 2 ? argv[2] : "");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank_program: %s\n", error.what());
    return 1;
  }
}
