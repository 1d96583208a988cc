#include "unisono/transport/tcp/message_mesh.h"

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/net/address.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/transport/purposes.h"
#include "unisono/transport/tcp/mesh.h"
#include "unisono/transport/tcp/tcp_stream.h"

namespace unisono::tcp {
namespace {

using ::testing::HasSubstr;

// What a rank sent before it left may be on its way: only a later refusal says that nothing comes.
TEST(MessageMesh, TakesTheResetOfAListenerThatEndsForARefusal) {
  Fd listener = net::listen_tcp(net::Address::loopback(0));
  const net::Address address = net::local_address(listener.get());
  MessageMesh mesh({{.job_rank = 0, .address = address, .name = "rank 0"},
                    {.job_rank = 1, .address = address, .name = "rank 1"}},
                   "secret",
                   {.job = "job", .purpose = transport::kMessagePurpose, .rank = 0},
                   prepare_streams(),
                   true);
  mesh.open(1);
  listener.reset();
  EXPECT_TRUE(mesh.progress().empty());
  std::string error;
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  while (error.empty() && !deadline.has_passed()) {
    try {
      (void)mesh.progress();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    } catch (const Error& thrown) {
      error = thrown.what();
    }
  }
  EXPECT_THAT(error, HasSubstr("nobody listens at " + address.to_string()));
}

// A welcome before the end would make a rank that left look like one that died.
TEST(MessageMesh, DoesNotWelcomeWhoeverComesOnceItsDoorIsClosed) {
  Fd listener = net::listen_tcp(net::Address::loopback(0));
  const net::Address address = net::local_address(listener.get());
  for (const bool is_closed : {false, true}) {
    MessageMesh mesh({{.job_rank = 0, .address = address, .name = "rank 0"},
                      {.job_rank = 1, .address = address, .name = "rank 1"}},
                     "secret",
                     {.job = "job", .purpose = transport::kMessagePurpose, .rank = 0},
                     prepare_streams(),
                     true);
    if (is_closed) {
      mesh.close_door();
    }
    const net::Connecting theirs = net::begin_connect(address);
    ASSERT_TRUE(net::wait_for(listener.get(), POLLIN, Deadline::after(std::chrono::seconds(10))));
    mesh.deliver(1, net::accept_connection(listener.get()).fd);
    ASSERT_TRUE(net::wait_for(theirs.fd.get(), POLLIN, Deadline::after(std::chrono::seconds(10))));
    std::byte answer{};
    const net::IoResult read = net::read_some(theirs.fd.get(), std::span(&answer, 1));
    EXPECT_EQ(read.status, is_closed ? net::IoStatus::kClosed : net::IoStatus::kDone);
    EXPECT_EQ(mesh.progress().size(), is_closed ? 0U : 1U);
  }
}

}  // namespace
}  // namespace unisono::tcp
