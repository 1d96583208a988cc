// The ways in which ranks meet that are given as text, besides env://.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/net/address.h"
#include "unisono/net/port_reservation.h"

#include "support/ranks.h"

namespace unisono {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

// A multicast group of this process alone: other runs may go on at the same time.
std::string group_at(int port) {
  return "tcp://239.84." + std::to_string(::getpid() / 256 % 256) + "." +
         std::to_string(::getpid() % 256) + ":" + std::to_string(port);
}

InitOptions meeting_at(const std::string& method) {
  return {.init_method = method,
          .timeout = std::chrono::seconds(30),
          .environment = test::fake_environment({{"UNISONO_ARENA_BYTES", "1G"}})};
}

// One thread per entry meets as it says; then all add their ones up. Returns each one's rank, in
// the order of the entries.
std::vector<int> ranks_of(const std::vector<InitOptions>& starts, float sum) {
  std::vector<int> ranks(starts.size(), -1);
  std::vector<std::string> errors(starts.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        const auto group = create_process_group(starts[i]);
        std::vector<float> ones(10, 1.0F);
        group->all_reduce(as_buffer(std::span(ones)));
        EXPECT_EQ(ones, std::vector<float>(10, sum));
        ranks[i] = group->rank();
        group->destroy();
      } catch (const std::exception& error) {
        errors[i] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_THAT(errors, Each(std::string()));
  return ranks;
}

std::vector<int> sorted(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

TEST(InitMethods, TcpNamesRankAndWorldSizeOrTheProgramDoes) {
  for (const bool is_given : {false, true}) {
    const net::PortReservation port(*net::Address::parse("127.0.0.1", 0));
    const std::string method = "tcp://127.0.0.1:" + std::to_string(port.port());
    std::vector<InitOptions> starts;
    for (int rank = 0; rank < 4; ++rank) {
      starts.push_back(
          meeting_at(is_given ? method : method + "?world_size=4&rank=" + std::to_string(rank)));
      if (is_given) {
        starts.back().rank = rank;
        starts.back().world_size = 4;
      }
    }
    EXPECT_EQ(ranks_of(starts, 4), (std::vector<int>{0, 1, 2, 3}));
  }
}

TEST(InitMethods, AMulticastGroupGivesOutTheRanks) {
  const std::vector<InitOptions> starts(4, meeting_at(group_at(43201) + "?world_size=4"));
  EXPECT_EQ(sorted(ranks_of(starts, 4)), (std::vector<int>{0, 1, 2, 3}));
}

TEST(InitMethods, JobsOfDifferentNamesShareAMulticastGroup) {
  const std::string method = group_at(43202) + "?world_size=2&group_name=";
  const InitOptions anna = meeting_at(method + "anna");
  const InitOptions bert = meeting_at(method + "bert");
  const std::vector<int> ranks = ranks_of({anna, bert, anna, bert}, 2);
  EXPECT_EQ(ranks[0] + ranks[2], 1);
  EXPECT_EQ(ranks[1] + ranks[3], 1);
}

std::string error_of(InitOptions start) {
  start.timeout = std::chrono::milliseconds(300);
  try {
    (void)create_process_group(start);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(InitMethods, WhatIsMissingIsNamed) {
  EXPECT_THAT(error_of(meeting_at("tcp://127.0.0.1:1")),
              HasSubstr("there is no rank; there is no world_size"));
  EXPECT_THAT(error_of(meeting_at(group_at(43203))), HasSubstr("there is no world_size"));
  EXPECT_THAT(error_of(meeting_at(group_at(43203) + "?world_size=2&rank=0")),
              HasSubstr("there is no option rank"));
  EXPECT_THAT(error_of(meeting_at(group_at(43203) + "?world_size=2")),
              AllOf(HasSubstr("1 of 2 processes are here: pid " + std::to_string(::getpid())),
                    HasSubstr(group_at(43203))));
  InitOptions given = meeting_at(group_at(43203) + "?world_size=2");
  given.rank = 0;
  EXPECT_THAT(error_of(given), HasSubstr("the program gives rank 0"));
  EXPECT_THAT(error_of(meeting_at("zeus://host")), HasSubstr("there is no scheme zeus"));
}

TEST(InitMethods, AWrongHostIsNamedWithItsReason) {
  EXPECT_THAT(error_of(meeting_at("tcp://127.0.0.1:1?rank=1&world_size=2")),
              AllOf(HasSubstr("127.0.0.1"), HasSubstr("Connection refused")));
}

}  // namespace
}  // namespace unisono
