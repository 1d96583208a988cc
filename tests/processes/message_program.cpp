// One rank of the multi-process tests of messages: message_program MODE [ARGUMENT].

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <map>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"

#include "support/process.h"

namespace {

using unisono::Buffer;
using unisono::ProcessGroup;
using unisono::test::print;
using unisono::test::seconds_of;
using unisono::test::wait_for_end_of_stdin;

// Returns the number of established connections to the ranks' data ports. Each connection counts
// once, at the accepting side.
int n_connections(const ProcessGroup& group) {
  std::set<int> ports;
  for (const auto& member : group.roster().members) {
    ports.insert(member.address.port());
  }
  std::ifstream file("/proc/net/tcp");
  std::string line;
  std::getline(file, line);
  int n = 0;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string number;
    std::string local;
    std::string remote;
    std::string state;
    words >> number >> local >> remote >> state;
    const int port = std::stoi(local.substr(local.find(':') + 1), nullptr, 16);
    n += state == "01" && ports.contains(port) ? 1 : 0;
  }
  return n;
}

// When two connections cross, the ranks close one of the two after a moment.
int n_lasting_connections(const ProcessGroup& group) {
  int n = n_connections(group);
  for (int before = -1; n != before;) {
    before = n;
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    n = n_connections(group);
  }
  return n;
}

// Passes a token around the ring once. When the token is back, all ranks have reached this call.
void pass_token(ProcessGroup& group) {
  const int next = (group.rank() + 1) % group.world_size();
  const int previous = (group.rank() + group.world_size() - 1) % group.world_size();
  std::int32_t token = 0;
  const Buffer buffer = unisono::as_buffer(std::span(&token, 1));
  if (group.rank() == 0) {
    group.send(buffer, next);
  }
  group.recv(buffer, previous);
  if (group.rank() != 0) {
    group.send(buffer, next);
  }
}

// Prints the number of connections before and after messages between all pairs or along the ring.
void connections(const std::string& who) {
  const auto group = unisono::init_process_group();
  if (group->rank() == 0) {
    print("before: %d\n", n_connections(*group));
  }
  wait_for_end_of_stdin();
  if (who == "pairs") {
    std::vector<std::int32_t> values(static_cast<std::size_t>(group->world_size()), group->rank());
    std::vector<unisono::Work> works;
    for (int peer = 0; peer < group->world_size(); ++peer) {
      if (peer != group->rank()) {
        std::int32_t& value = values[static_cast<std::size_t>(peer)];
        works.push_back(group->send_async(unisono::as_buffer(std::span(&value, 1)), peer));
      }
    }
    for (int peer = 0; peer < group->world_size(); ++peer) {
      std::int32_t value = -1;
      if (peer != group->rank()) {
        group->recv(unisono::as_buffer(std::span(&value, 1)), peer);
      }
    }
    for (const unisono::Work& work : works) {
      work.wait();
    }
  }
  pass_token(*group);
  pass_token(*group);
  if (group->rank() == 0) {
    print("after: %d\n", n_lasting_connections(*group));
  }
  pass_token(*group);
  unisono::destroy_process_group();
}

// Sends large messages around the ring of all ranks. The bytes identify the sender.
void ring(const std::string&) {
  const auto group = unisono::init_process_group();
  const int next = (group->rank() + 1) % group->world_size();
  const int previous = (group->rank() + group->world_size() - 1) % group->world_size();
  for (const std::size_t count : {1UL, 1000UL, 100'000UL, 16'000'000UL}) {
    std::vector<std::uint32_t> sent(count);
    std::vector<std::uint32_t> received(count);
    for (std::size_t i = 0; i < count; ++i) {
      sent[i] = static_cast<std::uint32_t>(i * 7) + static_cast<std::uint32_t>(group->rank());
    }
    const auto work = group->send_async(unisono::as_buffer(std::span(sent)), next);
    group->recv(unisono::as_buffer(std::span(received)), previous);
    work.wait();
    for (std::size_t i = 0; i < count; ++i) {
      if (received[i] != static_cast<std::uint32_t>(i * 7) + static_cast<std::uint32_t>(previous)) {
        throw std::runtime_error("a wrong element");
      }
    }
    print("%zu: right\n", count);
  }
  unisono::destroy_process_group();
}

// Rank 0 sends a second late. The wait of the receiver is the subject of the test.
void late(const std::string& operation) {
  const auto group = unisono::init_process_group();
  std::int32_t value = 0;
  const Buffer buffer = unisono::as_buffer(std::span(&value, 1));
  pass_token(*group);
  if (group->rank() == 0) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    for (int to = 1; to < group->world_size(); ++to) {
      group->send(buffer, to);
    }
  } else {
    const double begin = seconds_of(CLOCK_MONOTONIC);
    const double used = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    if (operation == "recv") {
      group->recv(buffer, 0);
    } else {
      group->recv_async(buffer, 0).wait();
    }
    const double cpu_seconds = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - used;
    print("waited %.6f cpu %.6f\n", seconds_of(CLOCK_MONOTONIC) - begin, cpu_seconds);
  }
  unisono::destroy_process_group();
}

// Sends messages of 1 MiB between all ranks without end.
void stream(const std::string&) {
  const auto group = unisono::init_process_group();
  std::vector<std::byte> in(1 << 20);
  std::vector<std::byte> out(1 << 20);
  for (int round = 0;; ++round) {
    for (int shift = 1; shift < group->world_size(); ++shift) {
      const int to = (group->rank() + shift) % group->world_size();
      const int from = (group->rank() + group->world_size() - shift) % group->world_size();
      const Buffer sent{.data = out.data(), .count = 1 << 20, .dtype = unisono::DType::kUInt8};
      const Buffer received{.data = in.data(), .count = 1 << 20, .dtype = unisono::DType::kUInt8};
      const auto work = group->send_async(sent, to);
      group->recv(received, from);
      work.wait();
    }
    if (round == 3) {
      print("streaming\n");
    }
  }
}

// Rank 0 sends a message that rank 1 does not expect. Rank 0 receives the error without a further
// call: its next call fails, although that call would not wait for any rank.
void mismatch(const std::string&) {
  const auto group = unisono::init_process_group();
  pass_token(*group);
  std::int32_t value = 0;
  std::vector<double> others(2);
  if (group->rank() == 1) {
    try {
      group->recv(unisono::as_buffer(std::span(others)), 0);
    } catch (const std::exception&) {
      print("failed\n");
      wait_for_end_of_stdin();
      throw;
    }
  }
  group->send(unisono::as_buffer(std::span(&value, 1)), 1);
  print("sent\n");
  wait_for_end_of_stdin();
  group->send(unisono::as_buffer(std::span(&value, 1)), 1);
  print("sent again\n");
}

// All ranks except `absent` wait for a message from that rank, which never comes.
void absence(const std::string& absent) {
  const auto group = unisono::init_process_group();
  if (group->rank() == std::stoi(absent)) {
    print("ready\n");
    wait_for_end_of_stdin();
    return;
  }
  std::int32_t value = 0;
  print("ready\n");
  group->recv(unisono::as_buffer(std::span(&value, 1)), std::stoi(absent), {.tag = 3});
}

// Rank 0 waits for a message from rank 1 that never comes, while another thread plays ping-pong
// with rank 2. Prints the number of round trips during the 0.1 s in which the first thread asks
// rank 1 for its state.
void meanwhile(const std::string& /*unused*/) {
  constexpr std::chrono::milliseconds kTimeout{500};
  constexpr std::chrono::milliseconds kHalfOfAsking{50};
  const auto group = unisono::init_process_group();
  std::int32_t token = 0;
  const Buffer ball = unisono::as_buffer(std::span(&token, 1));
  print("ready\n");
  wait_for_end_of_stdin();
  if (group->rank() == 1) {
    return;
  }
  if (group->rank() == 2) {
    while (true) {
      group->recv(ball, 0);
      group->send(ball, 0);
    }
  }
  const auto asking = std::chrono::steady_clock::now() + kTimeout + kHalfOfAsking;
  int n_returned = 0;
  std::thread player([&] {
    try {
      while (true) {
        group->send(ball, 2);
        group->recv(ball, 2);
        n_returned += std::chrono::steady_clock::now() > asking ? 1 : 0;
      }
    } catch (const std::exception&) {
      return;  // The timeout of the other thread has aborted the group.
    }
  });
  std::int32_t value = 0;
  try {
    group->recv(unisono::as_buffer(std::span(&value, 1)), 1, {.timeout = kTimeout});
  } catch (const std::exception& error) {
    player.join();
    print("%d meanwhile\n", n_returned);
    throw;
  }
}

// Rank 0 waits for a message from any rank. The other ranks compute until the end of their input.
void anybody(const std::string& /*unused*/) {
  const auto group = unisono::init_process_group();
  print("ready\n");
  if (group->rank() != 0) {
    wait_for_end_of_stdin();
    return;
  }
  std::int32_t value = 0;
  group->recv(unisono::as_buffer(std::span(&value, 1)), unisono::kAnySource);
}

// Rank 0 waits for a message that rank 1 sends at the end of its input.
void late_message(const std::string& /*unused*/) {
  const auto group = unisono::init_process_group();
  pass_token(*group);
  std::vector<std::int32_t> values(1000);
  const Buffer buffer = unisono::as_buffer(std::span(values));
  if (group->rank() == 0) {
    group->recv(buffer, 1);
  } else {
    wait_for_end_of_stdin();
    group->send(buffer, 0);
    group->recv(buffer, 0);
  }
}

// Rank 0 sends and then ends without destroy_process_group(), in one of several ways. Rank 1
// receives at the end of its input.
void exits(const std::string& how) {
  const auto group = unisono::init_process_group();
  pass_token(*group);
  std::int32_t value = 17;
  const Buffer buffer = unisono::as_buffer(std::span(&value, 1));
  if (group->rank() == 1) {
    wait_for_end_of_stdin();
    value = 0;
    group->recv(buffer, 0);
    print("received %d\n", value);
    group->all_reduce(buffer);
    return;
  }
  group->send(buffer, 1);
  if (how == "in a child, too" && ::fork() == 0) {
    // Hides LeakSanitizer's report about the parent's threads, which the child does not have.
    ::close(STDERR_FILENO);
    std::exit(0);
  } else if (how == "in an operation") {
    std::vector<std::int32_t> values(1);
    (void)group->all_reduce_async(unisono::as_buffer(std::span(values)));
    std::exit(3);
  }
  if (how == "in a child, too") {
    ::wait(nullptr);
    group->send(buffer, 1);
  }
}

// Rank 0 sends a message that rank 1 does not expect, and leaves without a further call.
void last_message(const std::string& how) {
  const auto group = unisono::init_process_group();
  pass_token(*group);
  std::int32_t value = 0;
  std::vector<double> others(2);
  if (group->rank() == 1) {
    print("ready\n");
    wait_for_end_of_stdin();
    group->recv(unisono::as_buffer(std::span(others)), 0);
    return;
  }
  group->send(unisono::as_buffer(std::span(&value, 1)), 1);
  print("leaves\n");
  if (how == "by destroy") {
    group->destroy();
    print("has left\n");
  }
}

// Rank 0 ends during an all_reduce that rank 1 calls at the end of its input.
void posted(const std::string& /*unused*/) {
  const auto group = unisono::init_process_group();
  pass_token(*group);
  // The memory of an operation must live until the operation has ended, so the variable is static.
  static std::int32_t value = group->rank() + 1;
  const Buffer buffer = unisono::as_buffer(std::span(&value, 1));
  if (group->rank() == 0) {
    (void)group->all_reduce_async(buffer);
    print("ends\n");
    return;
  }
  wait_for_end_of_stdin();
  group->all_reduce(buffer);
  print("sum %d\n", value);
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, void (*)(const std::string&)> modes{{"connections", connections},
                                                                  {"ring", ring},
                                                                  {"late", late},
                                                                  {"late_message", late_message},
                                                                  {"meanwhile", meanwhile},
                                                                  {"mismatch", mismatch},
                                                                  {"stream", stream},
                                                                  {"absence", absence},
                                                                  {"anybody", anybody},
                                                                  {"exits", exits},
                                                                  {"last_message", last_message},
                                                                  {"posted", posted}};
  try {
    modes.at(argc > 1 ? argv[1] : "")(argc > 2 ? argv[2] : "");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "message_program: %s\n", error.what());
    return 1;
  }
}
