#include "unisono/transport/shm/node.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>

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
    (void)meet_node(1,
                    {peer},
                    arena,
                    listener.get(),
                    "job",
                    "secret",
                    Deadline::after(std::chrono::seconds(30)));
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

}  // namespace
}  // namespace unisono::shm
