#include "unisono/transport/shm/node.h"

#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/net/unix_socket.h"
#include "unisono/transport/shm/arena.h"

namespace unisono::shm {
namespace {

// What rank 1 of a job learns of a peer that never comes.
std::string error_about(const NodeEndpoint& peer) {
  const auto arena = std::make_shared<const Arena>(Arena::create(1 << 20));
  const std::string name = "unisono-node-test-" + std::to_string(::getpid());
  const Fd listener = net::listen_unix_abstract(name);
  try {
    std::vector<NodePeer> met;
    meet_node(
        {.rank = 1, .arena = arena, .listener = listener.get(), .job = "job", .secret = "secret"},
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

// Its start has failed, but its process goes on.
TEST(MeetNode, AHigherRankThatListensNoMoreIsNamed) {
  EXPECT_THAT(error_about({.rank = 2,
                           .socket = "unisono-nobody",
                           .name = "rank 2 (pid 7 on x)",
                           .pid = ::getpid()}),
              ::testing::HasSubstr("rank 2 (pid 7 on x) is gone"));
}

// Nobody has reaped it yet.
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

}  // namespace
}  // namespace unisono::shm
