#include <unistd.h>

#include <chrono>
#include <future>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/rendezvous/methods/builtin_methods.h"
#include "unisono/rendezvous/methods/init_method.h"
#include "unisono/rendezvous/testing/launched_ranks.h"

namespace unisono::rendezvous {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A group of this process alone: other runs may go on at the same time.
std::string group() {
  return "tcp://239.85." + std::to_string(::getpid() / 256 % 256) + "." +
         std::to_string(::getpid() % 256) + ":43301";
}

// What a process hears that wants so many ranks.
std::string message_of(int world_size, std::chrono::milliseconds timeout, ErrorCode code) {
  Config config;
  config.log_level = LogLevel::kError;
  try {
    (void)discover_by_multicast({.method = parse_init_method(group()),
                                 .given = {.world_size = world_size},
                                 .config = config,
                                 .environment = fake({}),
                                 .deadline = Deadline::after(timeout)});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error";
}

TEST(MulticastMethod, WhoIsAloneHearsThatAndNoOtherReason) {
  EXPECT_THAT(message_of(3, std::chrono::milliseconds(300), ErrorCode::kTimeout),
              ::testing::MatchesRegex("rendezvous: at " + group() +
                                      " for [0-9.]+ s: 1 of 3 processes are "
                                      "here: pid " +
                                      std::to_string(::getpid()) + " on [^;]+"));
}

// The first one leaves as soon as it hears the second, which has heard nothing by then.
TEST(MulticastMethod, ProcessesThatContradictEachOtherAllHearIt) {
  const auto hear = [](int world_size) {
    return message_of(world_size, std::chrono::seconds(30), ErrorCode::kInvalidArgument);
  };
  std::future<std::string> first = std::async(std::launch::async, hear, 2);
  ASSERT_EQ(first.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
  EXPECT_THAT(hear(5), AllOf(HasSubstr("5 here"), HasSubstr("2 at pid ")));
  EXPECT_THAT(first.get(), AllOf(HasSubstr("2 here"), HasSubstr("5 at pid ")));
}

}  // namespace
}  // namespace unisono::rendezvous
