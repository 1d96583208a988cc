// Rendezvous methods that are given as text, except env://.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <filesystem>
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
#include "unisono/net/ports.h"
#include "unisono/rendezvous/methods/discovery.h"
#include "unisono/store/hash_store.h"

#include "support/ranks.h"
#include "support/temporary_folder.h"

namespace unisono {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Returns a multicast group of this process alone, because other test runs may be active at the
// same time.
std::string group_at(int port) {
  return "tcp://239.84." + std::to_string(::getpid() / 256 % 256) + "." +
         std::to_string(::getpid() % 256) + ":" + std::to_string(port);
}

InitOptions meeting_at(const std::string& method) {
  return {.init_method = method,
          .timeout = std::chrono::seconds(30),
          .environment = test::fake_environment({{"UNISONO_ARENA_BYTES", "1G"}})};
}

// Runs one thread per entry, which joins with these options and then sums the ones of all ranks.
// Returns the rank of each thread in the order of the entries.
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

std::string error_of(InitOptions start) {
  start.timeout = std::chrono::milliseconds(300);
  try {
    (void)create_process_group(start);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
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

TEST(InitMethods, RanksMeetInTheStoreThatTheyBring) {
  for (const bool has_two_nodes : {false, true}) {
    const auto store = std::make_shared<store::HashStore>();
    std::vector<InitOptions> starts;
    for (int rank = 0; rank < 4; ++rank) {
      starts.push_back(meeting_at("env://"));
      starts.back().store = store;
      starts.back().rank = rank;
      starts.back().world_size = 4;
      if (has_two_nodes) {
        starts.back().environment = test::fake_environment(
            {{"UNISONO_ARENA_BYTES", "1G"}, {"UNISONO_NODE_ID", rank % 2 == 0 ? "a" : "b"}});
      }
    }
    EXPECT_EQ(ranks_of(starts, 4), (std::vector<int>{0, 1, 2, 3}));
  }
}

TEST(DefaultGroup, IsThereBetweenInitAndDestroy) {
  const auto expect_none = [] {
    EXPECT_THAT([] { (void)default_process_group(); },
                ThrowsMessage<Error>("there is no default process group: call "
                                     "init_process_group() first"));
    EXPECT_NO_THROW(destroy_process_group());
  };
  for (int round = 0; round < 2; ++round) {
    expect_none();
    InitOptions start = meeting_at("env://");
    start.store = std::make_shared<store::HashStore>();
    start.rank = 0;
    start.world_size = 1;
    const auto group = init_process_group(start);
    EXPECT_EQ(default_process_group(), group);
    EXPECT_THAT([&] { (void)init_process_group(start); },
                ThrowsMessage<Error>(HasSubstr("there is a default group already")));
    EXPECT_EQ(default_process_group(), group);
    destroy_process_group();
    EXPECT_THAT([&] { group->barrier(); }, ThrowsMessage<Error>(HasSubstr("was destroyed")));
  }
  expect_none();
}

TEST(InitMethods, AStoreDoesNotSayWhichRankThisIs) {
  InitOptions start = meeting_at("env://");
  start.store = std::make_shared<store::HashStore>();
  EXPECT_THAT(error_of(start), HasSubstr("rank and world_size have to be given"));
  start.rank = 2;
  start.world_size = 2;
  EXPECT_THAT(error_of(start), HasSubstr("they are 2 and 2"));
  start.rank = 0;
  EXPECT_THAT(error_of(start), HasSubstr("rank 1"));
}

TEST(InitMethods, AStoreAndAMethodAreOneTooMany) {
  InitOptions start = meeting_at("tcp://127.0.0.1:1");
  start.store = std::make_shared<store::HashStore>();
  start.rank = 0;
  start.world_size = 1;
  EXPECT_THAT(error_of(start),
              HasSubstr("there are both a store and init_method \"tcp://127.0.0.1:1\""));
}

TEST(InitMethods, AMulticastGroupGivesOutTheRanks) {
  const std::vector<InitOptions> starts(4, meeting_at(group_at(43201) + "?world_size=4"));
  EXPECT_EQ(sorted(ranks_of(starts, 4)), (std::vector<int>{0, 1, 2, 3}));
}

// Two jobs of two processes each meet at the same place under different names. The processes of the
// jobs start alternately.
void expect_names_to_part_jobs(const std::string& place) {
  const std::string method = place + "?world_size=2&group_name=";
  const InitOptions anna = meeting_at(method + "anna");
  const InitOptions bert = meeting_at(method + "bert");
  const std::vector<int> ranks = ranks_of({anna, bert, anna, bert}, 2);
  EXPECT_EQ(ranks[0] + ranks[2], 1);
  EXPECT_EQ(ranks[1] + ranks[3], 1);
}

TEST(InitMethods, JobsOfDifferentNamesShareAMulticastGroup) {
  expect_names_to_part_jobs(group_at(43202));
}

TEST(InitMethods, AFileGivesOutTheRanksAndIsGoneAfterwards) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/job";
  for (int job = 0; job < 3; ++job) {
    const std::vector<InitOptions> starts(4, meeting_at("file://" + path + "?world_size=4"));
    EXPECT_EQ(sorted(ranks_of(starts, 4)), (std::vector<int>{0, 1, 2, 3}));
    EXPECT_FALSE(std::filesystem::exists(path));
  }
}

TEST(InitMethods, RanksThatAreGivenHoldInAFileToo) {
  const test::TemporaryFolder folder;
  std::vector<InitOptions> starts(4, meeting_at("file://" + folder.path() + "/job?world_size=4"));
  starts[0].rank = 3;
  starts[1].rank = 0;
  const std::vector<int> ranks = ranks_of(starts, 4);
  EXPECT_EQ(ranks[0], 3);
  EXPECT_EQ(ranks[1], 0);
  EXPECT_EQ(ranks[2] + ranks[3], 3);
}

TEST(InitMethods, JobsOfDifferentNamesShareAFile) {
  const test::TemporaryFolder folder;
  expect_names_to_part_jobs("file://" + folder.path() + "/job");
}

TEST(InitMethods, JobsThatFollowEachOtherInAFileDoNotMix) {
  // Eight simultaneous processes form two jobs of four, in any order of arrival.
  const test::TemporaryFolder folder;
  const std::vector<InitOptions> starts(
      8, meeting_at("file://" + folder.path() + "/job?world_size=4"));
  EXPECT_EQ(sorted(ranks_of(starts, 4)), (std::vector<int>{0, 0, 1, 1, 2, 2, 3, 3}));
}

TEST(InitMethods, ProcessesThatContradictEachOtherInAFileAllHearTheSame) {
  const test::TemporaryFolder folder;
  const std::string method = "file://" + folder.path() + "/job";
  const auto errors_of = [](const std::vector<InitOptions>& starts) {
    std::vector<std::string> errors(starts.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < starts.size(); ++i) {
      threads.emplace_back([&, i] { errors[i] = error_of(starts[i]); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    return errors;
  };
  const std::string pid = "(pid " + std::to_string(::getpid());
  EXPECT_THAT(errors_of({meeting_at(method + "?world_size=2&rank=1"),
                         meeting_at(method + "?world_size=2&rank=1")}),
              Each(AllOf(HasSubstr("rank 1 was given to 2 processes: rank 1 " + pid),
                         HasSubstr("no process has rank 0"))));
  EXPECT_THAT(
      errors_of({meeting_at(method + "?world_size=2"), meeting_at(method + "?world_size=3")}),
      Each(HasSubstr("the world size differs: 2 on rank")));
}

TEST(InitMethods, ASchemeOfTheProgramsOwnSaysWhereRanksMeet) {
  const net::PortReservation port(net::Address::loopback(0));
  rendezvous::register_init_method("zoo", [&](const rendezvous::DiscoveryRequest& request) {
    EXPECT_EQ(request.method.host, "elephants");
    return rendezvous::Discovered{
        .launch_info = {.master_addr = "127.0.0.1",
                        .master_port = port.port(),
                        .rank = request.given.rank,
                        .world_size = request.method.number("ranks", 1).value_or(0)},
        .presence = nullptr};
  });
  std::vector<InitOptions> starts(3, meeting_at("zoo://elephants?ranks=3"));
  for (int rank = 0; rank < 3; ++rank) {
    starts[static_cast<std::size_t>(rank)].rank = rank;
  }
  EXPECT_EQ(ranks_of(starts, 3), (std::vector<int>{0, 1, 2}));
  EXPECT_THAT([] { rendezvous::register_init_method("zoo", nullptr); },
              ThrowsMessage<Error>(HasSubstr("\"zoo\" needs a function")));
  for (const char* taken : {"zoo", "env", "tcp", "file"}) {
    EXPECT_THAT(
        [&] {
          rendezvous::register_init_method(
              taken, [](const rendezvous::DiscoveryRequest&) { return rendezvous::Discovered(); });
        },
        ThrowsMessage<Error>(HasSubstr("is there already")));
  }
  EXPECT_THAT(
      [] {
        rendezvous::register_init_method(
            "A b", [](const rendezvous::DiscoveryRequest&) { return rendezvous::Discovered(); });
      },
      ThrowsMessage<Error>(HasSubstr("is not a scheme")));
}

TEST(InitMethods, WhatIsMissingIsNamed) {
  EXPECT_THAT(error_of(meeting_at("tcp://127.0.0.1:1")),
              HasSubstr("there is no rank; there is no world_size"));
  EXPECT_THAT(error_of(meeting_at(group_at(43203))), HasSubstr("there is no world_size"));
  EXPECT_THAT(error_of(meeting_at(group_at(43203) + "?world_size=2&rank=0")),
              HasSubstr("rank 0 is given, but at a multicast group"));
  EXPECT_THAT(error_of(meeting_at(group_at(43203) + "?world_size=2")),
              AllOf(HasSubstr("1 of 2 processes are here: pid " + std::to_string(::getpid())),
                    HasSubstr(group_at(43203))));
  InitOptions given = meeting_at(group_at(43203) + "?world_size=2");
  given.rank = 0;
  EXPECT_THAT(error_of(given), HasSubstr("rank 0 is given"));
  EXPECT_THAT(error_of(meeting_at("file:///tmp/never")), HasSubstr("there is no world_size"));
  EXPECT_THAT(error_of(meeting_at("file:///tmp/never?world_size=2&rank=2&a=b")),
              HasSubstr("rank 2 is not below world_size 2; there is no option a"));
  for (const char* method : {"file://", "file:///", "file://job", "file://host:12/job"}) {
    EXPECT_THAT(error_of(meeting_at(std::string(method) + "?world_size=2")),
                HasSubstr("it needs an absolute path, after three slashes"));
  }
  EXPECT_THAT(error_of(meeting_at("zeus://host")),
              AllOf(HasSubstr("there is no scheme zeus"), HasSubstr("file://")));
}

TEST(InitMethods, WhoIsAloneAtAFileHearsThatAndLeavesNothing) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/job";
  EXPECT_THAT(error_of(meeting_at("file://" + path + "?world_size=2")),
              AllOf(HasSubstr("file://" + path),
                    HasSubstr("1 of 2 processes are here: pid " + std::to_string(::getpid()))));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(InitMethods, AFileThatIsNoMeetingStaysAsItIs) {
  const test::TemporaryFolder folder;
  const std::string path = folder.write("letter", "Dear Anna");
  EXPECT_THAT(error_of(meeting_at("file://" + path + "?world_size=2")),
              HasSubstr("the file existed before and is not a store's"));
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(InitMethods, AWrongHostIsNamedWithItsReason) {
  EXPECT_THAT(error_of(meeting_at("tcp://127.0.0.1:1?rank=1&world_size=2")),
              AllOf(HasSubstr("127.0.0.1"), HasSubstr("Connection refused")));
}

}  // namespace
}  // namespace unisono
