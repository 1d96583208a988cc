#include "unisono/transport/shm/node.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/net/hello.h"
#include "unisono/net/io.h"
#include "unisono/net/unix_socket.h"
#include "unisono/transport/frame.h"

namespace unisono::shm {
namespace {

// Returns the error of rank 1 about a peer that never arrives.
std::string error_about(const NodeEndpoint& peer) {
  const std::string name = "unisono-node-test-" + std::to_string(::getpid());
  const Fd listener = net::listen_unix_abstract(name);
  try {
    std::vector<NodePeer> met;
    (void)meet_node({.rank = 1,
                     .arena_bytes = 1 << 20,
                     .listener = listener.get(),
                     .job = "job",
                     .secret = "secret"},
                    {peer},
                    Deadline::after(std::chrono::seconds(30)),
                    met);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
    return error.what();
  }
  return "no error";
}

TEST(MeetNode, ALowerRankThatHasEndedIsNamed) {
  EXPECT_THAT(error_about({.rank = 0, .socket = "unisono-nobody", .name = "rank 0 (pid 7 on x)"}),
              ::testing::HasSubstr("rank 0 (pid 7 on x) is gone"));
}

TEST(MeetNode, AHigherRankThatHasEndedIsNamed) {
  const pid_t ended = ::vfork();
  if (ended == 0) {
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(ended, nullptr, 0), ended);
  EXPECT_THAT(error_about({.rank = 2, .socket = "", .name = "rank 2 (pid 7 on x)", .pid = ended}),
              ::testing::HasSubstr("rank 2 (pid 7 on x) is gone"));
}

// The start of the peer has failed, but its process continues.
TEST(MeetNode, AHigherRankThatListensNoMoreIsNamed) {
  EXPECT_THAT(error_about({.rank = 2,
                           .socket = "unisono-nobody",
                           .name = "rank 2 (pid 7 on x)",
                           .pid = ::getpid()}),
              ::testing::HasSubstr("rank 2 (pid 7 on x) is gone"));
}

// The killed process has not been reaped yet.
TEST(MeetNode, AHigherRankThatWasKilledIsNamed) {
  const pid_t killed = ::fork();
  if (killed == 0) {
    ::pause();
    ::_exit(0);
  }
  ASSERT_EQ(::kill(killed, SIGKILL), 0);
  siginfo_t end{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(killed), &end, WEXITED | WNOWAIT), 0);
  EXPECT_THAT(error_about({.rank = 2, .socket = "", .name = "rank 2 (pid 7 on x)", .pid = killed}),
              ::testing::HasSubstr("rank 2 (pid 7 on x) is gone"));
  ASSERT_EQ(::waitpid(killed, nullptr, 0), killed);
}

// A node with threads as ranks. The arenas have different sizes.
class NodeOfThreads {
 public:
  explicit NodeOfThreads(std::vector<std::int64_t> arena_bytes)
      : arena_bytes_(std::move(arena_bytes)) {
    for (std::size_t rank = 0; rank < arena_bytes_.size(); ++rank) {
      const std::string name = fmt::format("unisono-node-test-{}-{}", ::getpid(), rank);
      listeners_.push_back(net::listen_unix_abstract(name));
      endpoints_.push_back({.rank = static_cast<int>(rank),
                            .socket = name,
                            .name = fmt::format("rank {} (pid 7 on x)", rank)});
    }
  }

  // Runs the rendezvous and stores the result of each rank. Like comm/job_start, a rank that fails
  // sends its error to the ranks that have connected.
  void meet(std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
    memories.resize(arena_bytes_.size());
    errors.resize(arena_bytes_.size());
    std::vector<std::thread> ranks;
    for (std::size_t rank = 0; rank < arena_bytes_.size(); ++rank) {
      ranks.emplace_back([this, rank, timeout] {
        std::vector<NodePeer> met;
        try {
          memories[rank] = meet_as(rank, Deadline::after(timeout), met);
        } catch (const Error& error) {
          errors[rank] = error.what();
          for (const NodePeer& peer : met) {
            transport::send_abort(peer.socket.get(), 0, error);
          }
          listeners_[rank].reset();
        }
      });
    }
    for (std::thread& rank : ranks) {
      rank.join();
    }
  }

  std::vector<std::optional<NodeMemory>> memories;
  std::vector<std::string> errors;

 private:
  [[nodiscard]] NodeMemory meet_as(std::size_t rank,
                                   Deadline deadline,
                                   std::vector<NodePeer>& met) {
    std::vector<NodeEndpoint> others = endpoints_;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(rank));
    return meet_node({.rank = static_cast<int>(rank),
                      .arena_bytes = arena_bytes_[rank],
                      .listener = listeners_[rank].get(),
                      .job = "job",
                      .secret = "secret"},
                     others,
                     deadline,
                     met);
  }

  std::vector<std::int64_t> arena_bytes_;
  std::vector<Fd> listeners_;
  std::vector<NodeEndpoint> endpoints_;
};

TEST(MeetNode, AllRanksGetTheSameMemoryWithAnArenaOfTheSizeThatEachWants) {
  NodeOfThreads node({1 << 20, 3 << 20, 4096, 1 << 28, 1 << 20});
  node.meet();
  ASSERT_THAT(node.errors, ::testing::Each(""));
  for (std::size_t rank = 0; rank < node.memories.size(); ++rank) {
    const auto arena = node.memories[rank]->arena(rank);
    arena->data()[0] = static_cast<std::byte>(rank + 1);
    arena->data()[arena->n_bytes() - 1] = static_cast<std::byte>(rank + 11);
  }
  const std::vector<std::int64_t> n_bytes = {1 << 20, 3 << 20, 4096, 1 << 28, 1 << 20};
  for (const std::optional<NodeMemory>& memory : node.memories) {
    EXPECT_EQ(memory->key(), node.memories[0]->key());
    ASSERT_EQ(memory->n_ranks(), 5U);
    for (std::size_t rank = 0; rank < 5; ++rank) {
      const auto arena = memory->arena(rank);
      EXPECT_EQ(arena->n_bytes(), n_bytes[rank]);
      EXPECT_EQ(arena->data()[0], static_cast<std::byte>(rank + 1));
      EXPECT_EQ(arena->data()[arena->n_bytes() - 1], static_cast<std::byte>(rank + 11));
    }
  }
}

// The first rank, which creates the memory, detects the failure. All ranks, including the first
// rank, name rank 2.
TEST(MeetNode, ARankForWhichThereIsNoRoomIsNamedToAll) {
  NodeOfThreads node({1 << 20, 1 << 20, std::int64_t{1} << 60, 1 << 20});
  node.meet();
  EXPECT_THAT(node.errors,
              ::testing::Each(::testing::HasSubstr("rank 2 (pid 7 on x) wants an arena")));
}

TEST(MeetNode, WhatAnotherRankFailsForIsToldToAll) {
  const std::string name = "unisono-node-test-failing-" + std::to_string(::getpid());
  const Fd listener = net::listen_unix_abstract(name);
  std::vector<NodePeer> met;
  std::string seen;
  std::thread lowest([&] {
    try {
      (void)meet_node({.rank = 0,
                       .arena_bytes = 1 << 20,
                       .listener = listener.get(),
                       .job = "job",
                       .secret = "secret"},
                      {{.rank = 1,
                        .socket = "unisono-nobody",
                        .name = "rank 1 (pid 7 on x)",
                        .pid = ::getpid()}},
                      Deadline::after(std::chrono::seconds(30)),
                      met);
    } catch (const Error& error) {
      seen = error.what();
    }
  });
  const Deadline deadline = Deadline::after(std::chrono::seconds(30));
  const Fd socket = net::connect_unix_abstract(name, deadline);
  (void)net::connect_hello(
      socket.get(), "secret", {.job = "job", .purpose = "node", .rank = 1}, deadline);
  const std::int64_t n_bytes = 1 << 20;
  net::write_all(socket.get(), std::as_bytes(std::span(&n_bytes, 1)), deadline, "rank 0");
  std::array<std::byte, 1> ready{};
  net::read_exact(socket.get(), ready, deadline, "rank 0");
  const Fd memory = net::receive_fd(socket.get(), deadline, "rank 0");
  EXPECT_EQ(NodeMemory::map(Fd(::dup(memory.get())), 2).n_ranks(), 2U);
  EXPECT_THROW((void)NodeMemory::map(Fd(::dup(memory.get())), 3), Error);
  transport::send_abort(socket.get(), 0, Error(ErrorCode::kSystem, "no room to map it"));
  lowest.join();
  EXPECT_EQ(seen, "rank 0: rank 1 (pid 7 on x) aborted: no room to map it");
}

}  // namespace
}  // namespace unisono::shm
