#include "unisono/rendezvous/roster/exchange_roster.h"

#include <sys/socket.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/net/address.h"
#include "unisono/rendezvous/testing/ranks.h"
#include "unisono/store/store.h"
#include "unisono/store/tcp_store.h"

namespace unisono::rendezvous {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

RosterMember member(int rank, int world_size) {
  return {.rank = rank,
          .world_size = world_size,
          .host = "host",
          .pid = 100 + rank,
          .node = "left",
          .address = "127.0.0.1",
          .port = 1,
          .endpoint = "end"};
}

struct Outcome {
  std::optional<Roster> roster;
  std::string error;
};

class ExchangeRoster : public ::testing::Test {
 protected:
  [[nodiscard]] std::unique_ptr<store::TcpStore> connect() const {
    return std::make_unique<store::TcpStore>(
        store::TcpStoreOptions{
            .host = "127.0.0.1", .port = host_.address().port(), .secret = "secret"},
        soon());
  }

  // Each member is a thread with its own connection.
  [[nodiscard]] std::vector<Outcome> exchange(const std::vector<RosterMember>& members,
                                              const ExchangeOptions& options = {}) const {
    std::vector<Outcome> outcomes(members.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < members.size(); ++i) {
      threads.emplace_back([&, i] {
        try {
          outcomes[i].roster = exchange_roster(*connect(), members[i], soon(), options);
        } catch (const Error& error) {
          outcomes[i].error = error.what();
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    return outcomes;
  }

  // Expects that all members failed with the same error, and returns that error.
  static std::string common_error(const std::vector<Outcome>& outcomes) {
    for (const Outcome& outcome : outcomes) {
      EXPECT_FALSE(outcome.roster.has_value());
      EXPECT_EQ(outcome.error, outcomes.front().error);
    }
    return outcomes.front().error;
  }

  store::TcpStoreHost host_{{.address = *net::Address::parse("127.0.0.1", 0),
                             .secret = "secret",
                             .logger = base::Logger("store", LogLevel::kError)}};
};

TEST_F(ExchangeRoster, EveryRankGetsTheSameRosterByRank) {
  for (const int world_size : {1, 2, 3, 5, 8}) {
    std::vector<RosterMember> members;
    for (int rank = world_size - 1; rank >= 0; --rank) {
      members.push_back(member(rank, world_size));
    }
    ExchangeOptions options;
    options.generation = static_cast<std::uint64_t>(world_size);
    std::set<std::string> jobs;
    for (const Outcome& outcome : exchange(members, options)) {
      ASSERT_TRUE(outcome.roster.has_value()) << outcome.error;
      ASSERT_EQ(outcome.roster->world_size(), world_size);
      for (int rank = 0; rank < world_size; ++rank) {
        const RosterMember& found = outcome.roster->members[static_cast<std::size_t>(rank)];
        EXPECT_EQ(found.rank, rank);
        EXPECT_EQ(found.pid, 100 + rank);
        EXPECT_EQ(found.endpoint, "end");
      }
      jobs.insert(outcome.roster->job);
    }
    EXPECT_EQ(jobs.size(), 1U);
    EXPECT_EQ(jobs.begin()->size(), 32U);
  }
}

TEST_F(ExchangeRoster, WhoEndsBeforeAllHaveComeIsNamedToAllAtOnce) {
  const auto lost = connect();
  std::thread ends(
      [&] { EXPECT_THROW((void)exchange_roster(*lost, member(1, 4), soon()), Error); });
  const std::string joined = "unisono/0/count";
  connect()->wait(std::span(&joined, 1), soon());
  std::thread kills([&] {
    while (connect()->get(joined, soon()) != "3") {
      std::this_thread::sleep_for(milliseconds(1));
    }
    ::shutdown(lost->fd(), SHUT_RDWR);
  });
  EXPECT_EQ(common_error(exchange({member(0, 4), member(3, 4)})),
            "rendezvous: rank 1 (pid 101 on host) joined, but ended before all ranks had joined; "
            "see its output");
  ends.join();
  kills.join();
  EXPECT_EQ(find_state(*connect()), MeetingState::kGivenUp);
}

TEST_F(ExchangeRoster, WhoCantTakePartTellsWhy) {
  fail_roster(*connect(), member(1, 3), "failed: no port is free");
  EXPECT_EQ(common_error(exchange({member(0, 3), member(2, 3)})),
            "rendezvous: rank 1 (pid 101 on host) failed: no port is free");
}

TEST_F(ExchangeRoster, WhoLeavesInVainIsNotSaidToHaveEnded) {
  EXPECT_THROW((void)exchange_roster(*connect(), member(1, 3), Deadline::after(milliseconds(2))),
               Error);
  EXPECT_THAT(
      [&] { (void)exchange_roster(*connect(), member(0, 3), Deadline::after(milliseconds(50))); },
      ::testing::ThrowsMessage<Error>(HasSubstr("for rank 2 (2 of 3 joined)")));
}

TEST_F(ExchangeRoster, ASecondMeetingOnTheSameStoreHasANameOfItsOwn) {
  const std::vector<RosterMember> members{member(0, 2), member(1, 2)};
  ExchangeOptions second;
  second.generation = 1;
  const auto before = exchange(members);
  const auto after = exchange(members, second);
  ASSERT_TRUE(before[0].roster && after[0].roster);
  EXPECT_NE(before[0].roster->job, after[0].roster->job);
  EXPECT_EQ(after[0].roster->rank, 0);
  EXPECT_EQ(after[1].roster->self().rank, 1);
}

TEST_F(ExchangeRoster, TimeIsUpNamesWhomTheStoreHasTurnedAway) {
  const std::shared_ptr<store::Store> whole = connect();
  whole->set(store::kTurnedAwayKey, "the store has rejected a connection");
  store::PrefixStore part("part", whole);
  const ExchangeOptions in_part{.whole_store = whole.get()};
  for (const auto& [store, options] :
       {std::pair<store::Store*, ExchangeOptions>(whole.get(), {}), {&part, in_part}}) {
    EXPECT_THAT(
        [&] {
          (void)exchange_roster(*store, member(0, 2), Deadline::after(milliseconds(2)), options);
        },
        ::testing::ThrowsMessage<Error>(
            HasSubstr("for rank 1 (1 of 2 joined); the store has rejected a connection")));
  }
}

TEST_F(ExchangeRoster, DoubledRanksFailEverywhereAtOnceWithoutTheMissingOne) {
  // Rank 2 of 4 never arrives. The two ranks 1 are sufficient to detect that the job can't succeed.
  RosterMember twin = member(1, 4);
  twin.pid = 999;
  const std::string error = common_error(exchange({member(0, 4), member(1, 4), twin}));
  EXPECT_THAT(error, HasSubstr("rank 1 was given to 2 processes"));
  EXPECT_THAT(error, HasSubstr("pid 101"));
  EXPECT_THAT(error, HasSubstr("pid 999"));
}

TEST_F(ExchangeRoster, UnequalWorldSizesFailEverywhereAtOnce) {
  const std::string error = common_error(exchange({member(0, 3), member(1, 2)}));
  EXPECT_THAT(error,
              HasSubstr("the world size differs: 2 on rank 1 (pid 101 on host), but 3 on rank 0"));
}

TEST_F(ExchangeRoster, WhoComesAfterAFailureFailsTheSameWay) {
  const std::string error = common_error(exchange({member(0, 3), member(1, 2)}));
  EXPECT_EQ(common_error(exchange({member(2, 3)})), error);
}

TEST_F(ExchangeRoster, WhoComesToAFullRosterIsToldWhoHasItsRank) {
  ASSERT_TRUE(exchange({member(0, 2), member(1, 2)})[0].roster.has_value());
  RosterMember late = member(1, 2);
  late.pid = 999;
  EXPECT_EQ(common_error(exchange({late})),
            "rendezvous: all 2 ranks have joined already, without rank 1 (pid 999 on host): rank 1 "
            "(pid 101 on host) joined before");
  EXPECT_THAT(common_error(exchange({late}, {.place = "MASTER_PORT=1"})),
              HasSubstr("joined before; another job may use MASTER_PORT=1"));
}

TEST_F(ExchangeRoster, TimeIsUpNamesTheMissingRanks) {
  const auto first = connect();
  const auto try_to = [&](store::Store& store, const RosterMember& self) {
    try {
      (void)exchange_roster(store, self, Deadline::after(milliseconds(2)));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kTimeout);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(try_to(*first, member(0, 4)), HasSubstr("for ranks 1, 2, 3 (1 of 4 joined)"));
  const auto second = connect();
  EXPECT_THAT(try_to(*second, member(3, 4)), HasSubstr("for ranks 1, 2 (2 of 4 joined)"));
}

// The other ranks read the report of one rank.
TEST_F(ExchangeRoster, OneOfThoseWhoWaitFindsOutForWhom) {
  const auto store = connect();
  const auto error_of = [&](int rank) {
    try {
      (void)exchange_roster(*store, member(rank, 9), Deadline::after(milliseconds(2)));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(error_of(7), HasSubstr("(1 of 9 joined)"));
  EXPECT_THAT(store->get("unisono/0/absent/1", soon()),
              "ranks 0, 1, 2, 3, 4, 5, 6, 8 (1 of 9 joined)");
  store->add("unisono/0/absent/2/asked", 1);
  store->set("unisono/0/absent/2", "what another wrote");
  EXPECT_THAT(error_of(0), HasSubstr("for what another wrote"));
  // A rank that died before its first write.
  store->add("unisono/0/absent/3/asked", 1);
  EXPECT_THAT(error_of(1), HasSubstr("(3 of 9 joined)"));
}

TEST_F(ExchangeRoster, ItSaysForWhomItWaits) {
  ExchangeOptions options;
  options.stall = milliseconds(1);
  options.logger = base::Logger("rank 0");
  ::testing::internal::CaptureStderr();
  EXPECT_THROW(
      (void)exchange_roster(*connect(), member(0, 2), Deadline::after(milliseconds(300)), options),
      Error);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("[unisono rank 0] warning: rendezvous: rank 0 has waited"));
}

// The store of the other ranks may end with the first rank that detects the failure.
TEST_F(ExchangeRoster, NobodyLeavesAFailureThatAnotherHasNotSeen) {
  const auto store = connect();
  const auto fails = [&](const RosterMember& self) {
    EXPECT_THROW((void)exchange_roster(*connect(), self, soon()), Error);
  };
  std::thread first([&] { fails(member(1, 3)); });
  store->wait(std::vector<std::string>{"unisono/0/count"}, soon());
  std::thread second([&] { fails(member(1, 3)); });
  first.join();
  EXPECT_EQ(store->try_get("unisono/0/seen"), "2");
  second.join();
}

// Ranks that are started together do not arrive at the same moment.
TEST_F(ExchangeRoster, AFailureStaysForThoseWhoAreLate) {
  const std::vector<std::string> all_seen{"unisono/0/all seen"};
  const auto store = connect();
  const auto fails = [&](int rank) {
    EXPECT_THAT([&] { (void)exchange_roster(*connect(), member(rank, 3), soon()); },
                ::testing::ThrowsMessage<Error>(HasSubstr("rank 1 was given to 2 processes")));
  };
  std::vector<std::thread> doubled;
  doubled.emplace_back([&] { fails(1); });
  doubled.emplace_back([&] { fails(1); });
  store->wait(std::vector<std::string>{"unisono/0/seen"}, soon());
  fails(0);
  EXPECT_FALSE(store->check(all_seen));
  fails(2);
  EXPECT_TRUE(store->check(all_seen));
  for (std::thread& thread : doubled) {
    thread.join();
  }
}

TEST_F(ExchangeRoster, ATwinIsOfTheSameRankAndWorldSize) {
  const auto store = connect();
  EXPECT_FALSE(wait_for_twin(*store, member(0, 2), Deadline::after(milliseconds(2))));
  std::thread late([&] {
    EXPECT_THROW((void)exchange_roster(*connect(), member(0, 2), Deadline::after(milliseconds(2))),
                 Error);
  });
  EXPECT_TRUE(wait_for_twin(*store, member(0, 2), soon()));
  late.join();
  EXPECT_FALSE(wait_for_twin(*store, member(0, 3), soon())) << "another job's";
  EXPECT_FALSE(
      wait_for_twin(*store, member(0, 2), Deadline::after(milliseconds(2)), {.generation = 1}));
}

TEST_F(ExchangeRoster, ItsStateIsToldToThoseWhoLookForAMeeting) {
  const auto store = connect();
  ExchangeOptions second;
  second.generation = 1;
  EXPECT_EQ(find_state(*store), MeetingState::kOpen);
  EXPECT_THROW((void)exchange_roster(*store, member(0, 2), Deadline::after(milliseconds(2))),
               Error);
  EXPECT_EQ(find_state(*store), MeetingState::kGivenUp);
  EXPECT_EQ(find_state(*store, second), MeetingState::kOpen);
  ASSERT_TRUE(exchange({member(0, 2), member(1, 2)}, second)[0].roster.has_value());
  EXPECT_EQ(find_state(*store, second), MeetingState::kOver);
  (void)common_error(exchange({member(0, 2)}));
  EXPECT_EQ(find_state(*store), MeetingState::kOver);
}

TEST_F(ExchangeRoster, JunkInTheStoreIsCorrupt) {
  connect()->set("unisono/0/ready", "junk");
  EXPECT_THAT(common_error(exchange({member(0, 2)})), HasSubstr("malformed"));
}

}  // namespace
}  // namespace unisono::rendezvous
