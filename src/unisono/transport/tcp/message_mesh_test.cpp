#include "unisono/transport/tcp/message_mesh.h"

#include <chrono>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/net/address.h"
#include "unisono/net/socket.h"
#include "unisono/transport/tcp/mesh.h"

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
                   {.job = "job", .purpose = kMessagePurpose, .rank = 0},
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

}  // namespace
}  // namespace unisono::tcp
