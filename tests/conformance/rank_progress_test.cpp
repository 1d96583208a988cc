// Reports about a rank with active messages while other ranks wait for that rank.
#include <chrono>
#include <cstdlib>
#include <latch>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

#include "support/ranks.h"

namespace unisono {
namespace {

using test::errors_of_ranks;
using test::one_node;
using test::run_ranks;
using test::World;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// A rank reports its wait after 0.2 s.
constexpr std::chrono::milliseconds kLong{1000};

void wait_for_rank_1(ProcessGroup& group, bool is_message) {
  float value = 0;
  const Buffer buffer = as_buffer(std::span(&value, 1));
  if (is_message) {
    group.recv(buffer, 1, {.timeout = kLong});
  } else {
    group.all_reduce(buffer, {.timeout = kLong});
  }
}

TEST(RankProgress, TellsOfAMessageThatIsUnderWay) {
  const auto errors = errors_of_ranks(one_node(3), [](ProcessGroup& group) {
    float value = 0;
    const Buffer buffer = as_buffer(std::span(&value, 1));
    if (group.rank() == 0) {
      group.all_reduce(buffer, {.timeout = kLong});
    } else if (group.rank() == 1) {
      group.recv(buffer, 2, {.tag = 7});
    } else {
      const auto received = group.recv_async(buffer, 0);
      group.send_async(buffer, 0, {.tag = 4}).wait();
      received.wait();
    }
  });
  EXPECT_THAT(errors[0],
              AllOf(HasSubstr("which waits in recv (f32[1], from rank 2, tag 7), and has called no "
                              "collective operation of this group yet"),
                    HasSubstr("which has recv (f32[1], from rank 0, tag 0) under way, and has "
                              "called no collective operation of this group yet")));
}

TEST(RankProgress, ForgetsAMessageThatHasEnded) {
  std::latch has_received(1);
  std::latch has_timed_out(1);
  run_ranks(one_node(2), [&](ProcessGroup& group) {
    float value = 0;
    const Buffer buffer = as_buffer(std::span(&value, 1));
    if (group.rank() == 1) {
      group.recv(buffer, 0);
      has_received.count_down();
      has_timed_out.wait();
      return;
    }
    std::this_thread::sleep_for(kLong);
    group.send(buffer, 1);
    has_received.wait();
    try {
      group.all_reduce(buffer, {.timeout = std::chrono::milliseconds(50)});
      ADD_FAILURE() << "rank 1 took part";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("has called no"), Not(HasSubstr("recv"))));
    }
    has_timed_out.count_down();
  });
}

TEST(RankProgress, OfAReceiveThatTimesOutTellsTheTagsThatCameInstead) {
  const auto errors = errors_of_ranks(one_node(2), [](ProcessGroup& group) {
    float value = 0;
    const Buffer buffer = as_buffer(std::span(&value, 1));
    if (group.rank() == 1) {
      group.send(buffer, 0, {.tag = 4});
      group.send(buffer, 0, {.tag = 5});
      group.send(buffer, 0, {.tag = 4});
      group.recv(buffer, 0);
    } else {
      group.recv(buffer, 1, {.tag = 3, .timeout = kLong});
    }
  });
  EXPECT_THAT(errors[0],
              HasSubstr("; it has sent messages with tag 4, 5, which no receive matches"));
}

TEST(RankProgress, OfARankOfAnotherNodeIsAskedForWhenTimeIsUp) {
  for (const bool is_message : {false, true}) {
    std::latch has_timed_out(1);
    run_ranks({.nodes = {"a", "b"}}, [&](ProcessGroup& group) {
      group.barrier();
      if (group.rank() == 1) {
        has_timed_out.wait();
        return;
      }
      try {
        wait_for_rank_1(group, is_message);
        ADD_FAILURE() << "rank 1 took part";
      } catch (const Error& error) {
        EXPECT_THAT(error.what(),
                    ContainsRegex("timed out waiting for rank 1 [(]pid [^)]*[)], which is running "
                                  "and has finished barrier #1 and called no"));
      }
      has_timed_out.count_down();
    });
  }
}

// The other group does not contain the waiting rank.
TEST(RankProgress, TellsOfWhatARankDoesInOtherGroups) {
  for (const std::vector<std::string>& nodes :
       {std::vector<std::string>{"a", "a", "a"}, {"a", "b", "b"}, {"a", "b", "c"}}) {
    for (const bool is_message : {false, true}) {
      std::latch has_timed_out(1);
      run_ranks({.nodes = nodes}, [&](ProcessGroup& group) {
        const auto inner = group.new_group(std::vector{2, 1});
        float value = 0;
        const Buffer buffer = as_buffer(std::span(&value, 1));
        if (group.rank() == 1 && is_message) {
          inner->recv(buffer, 0);
        } else if (group.rank() == 1) {
          inner->broadcast(buffer, {.root = 0});
        } else if (group.rank() == 2) {
          has_timed_out.wait();
          if (is_message) {
            inner->send(buffer, 1);
          } else {
            inner->broadcast(buffer, {.root = 0});
          }
        } else {
          try {
            group.all_reduce(buffer, {.timeout = kLong});
            ADD_FAILURE() << "the others took part";
          } catch (const Error& error) {
            EXPECT_THAT(
                error.what(),
                ContainsRegex(
                    std::string("rank 1 [(]pid [^)]*[)], which (is running and )?") +
                    (is_message
                         ? "waits in recv [(]f32.1., from rank 0 [(]rank 2 of the job[)], "
                           "tag 0[)]"
                         : "is in broadcast #1 [(]f32.1., root 0 [(]rank 2 of the job[)][)]") +
                    " of group 2[.]1 [(]ranks 2, 1[)], and has finished all_gather #2"));
          }
          has_timed_out.count_down();
        }
      });
    }
  }
}

// Failed groups stay until the caller destroys the groups, and there may be many.
TEST(RankProgress, TellsFirstOfWhatARankStillDoes) {
  for (const std::vector<std::string>& nodes : {std::vector<std::string>{"a", "a"}, {"a", "b"}}) {
    run_ranks({.nodes = nodes}, [&](ProcessGroup& group) {
      const std::vector<std::vector<int>> lists(13, {0, 1});
      const auto inner = group.new_groups(lists);
      float value = 0;
      const Buffer buffer = as_buffer(std::span(&value, 1));
      if (group.rank() == 1) {
        for (std::size_t n = 0; n + 1 < inner.size(); ++n) {
          EXPECT_THROW(inner[n]->all_reduce(buffer, {.timeout = std::chrono::milliseconds(1)}),
                       Error);
        }
      }
      group.barrier();
      if (group.rank() == 1) {
        inner.back()->all_reduce(buffer);
        return;
      }
      try {
        group.all_reduce(buffer, {.timeout = kLong});
        ADD_FAILURE() << "rank 1 took part";
      } catch (const Error& error) {
        EXPECT_THAT(
            error.what(),
            ContainsRegex("which (is running and )?is in all_reduce #1 [(]f32.1., sum[)] of "
                          "group 0[.]13 [(]ranks 0, 1[)], and aborted in all_reduce #1 .*[)], "
                          "and has calls in [0-9]+ more groups, and has finished"));
      }
      inner.back()->all_reduce(buffer);
    });
  }
}

// The process continues in other groups, and had no connection over which it could report that it
// left.
TEST(RankProgress, TellsOfARankOfAnotherNodeThatLeftTheGroup) {
  const char* const transport = std::getenv("UNISONO_TRANSPORT");
  std::string said_by_connection = "left the group, but this operation still needs it";
  if (transport != nullptr && transport == std::string("ucx")) {
    // UCX may not have completed the setup that the other rank needs for its report.
    said_by_connection += "|rank 1 [(]pid [^)]*[)] closed the connection";
  }
  for (const bool is_message : {false, true}) {
    std::latch has_timed_out(1);
    run_ranks({.nodes = {"a", "b"}}, [&](ProcessGroup& group) {
      const auto inner = group.new_group(std::vector{0, 1});
      if (group.rank() == 1) {
        inner->destroy();
        has_timed_out.wait();
        return;
      }
      try {
        wait_for_rank_1(*inner, is_message);
        ADD_FAILURE() << "rank 1 took part";
      } catch (const Error& error) {
        // The report that the rank has left may reach the operation before the answer to the query.
        EXPECT_THAT(error.what(),
                    AnyOf(ContainsRegex("timed out waiting for rank 1 [(]pid [^)]*[)], which is "
                                        "running, but has left this group"),
                          ContainsRegex(said_by_connection)));
      }
      has_timed_out.count_down();
    });
  }
}

// A waiting rank has to query or dial the rank that left. This also holds if both had a connection
// for messages or for operations, but not for the current wait.
struct LeaverCase {
  int leaver;
  bool is_message;
  bool has_met_otherwise;
};

class Leaver : public ::testing::TestWithParam<LeaverCase> {};

TEST_P(Leaver, OfAnotherNodeEndsTheWait) {
  const auto [leaver, is_message, has_met_otherwise] = GetParam();
  std::latch has_failed(1);
  const World world{.nodes = {"a", "b"}, .environment = {{"UNISONO_STALL_SECONDS", "0.3"}}};
  run_ranks(world, [&](ProcessGroup& group) {
    const auto inner = group.new_group(std::vector{0, 1});
    float value = 0;
    const Buffer buffer = as_buffer(std::span(&value, 1));
    if (has_met_otherwise && is_message) {
      inner->barrier();
    } else if (has_met_otherwise && group.rank() == leaver) {
      inner->send(buffer, 1 - leaver);
    } else if (has_met_otherwise) {
      inner->recv(buffer, leaver);
    }
    if (group.rank() == leaver) {
      inner->destroy();
      has_failed.wait();
      return;
    }
    try {
      if (is_message) {
        inner->recv(buffer, leaver);
      } else {
        inner->barrier();
      }
      ADD_FAILURE() << "rank " << leaver << " took part";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
      EXPECT_THAT(error.what(),
                  AnyOf(HasSubstr("left the group, but this operation still needs it"),
                        HasSubstr("has left the group, or is gone: it ended the connection")));
    }
    has_failed.count_down();
  });
}

INSTANTIATE_TEST_SUITE_P(RankProgress,
                         Leaver,
                         ::testing::Values(LeaverCase{0, false, false},
                                           LeaverCase{0, false, true},
                                           LeaverCase{0, true, false},
                                           LeaverCase{0, true, true},
                                           LeaverCase{1, false, false},
                                           LeaverCase{1, false, true},
                                           LeaverCase{1, true, false},
                                           LeaverCase{1, true, true}));

// No rank has a connection over which a clean leave could be reported.
TEST(RankProgress, OfARankThatLeftBeforeTheFirstCallIsNotSaidThatItDied) {
  for (const int leaver : {0, 1}) {
    for (const bool is_message : {false, true}) {
      const auto errors = errors_of_ranks({.nodes = {"a", "b"}}, [&](ProcessGroup& group) {
        float value = 0;
        const Buffer buffer = as_buffer(std::span(&value, 1));
        if (group.rank() == leaver) {
          return;
        }
        if (is_message) {
          group.recv(buffer, leaver);
        } else {
          group.all_reduce(buffer);
        }
      });
      EXPECT_THAT(errors[1 - static_cast<std::size_t>(leaver)],
                  AnyOf(HasSubstr("has left the group, or is gone: no process listens at"),
                        HasSubstr("has left the group, or is gone: it ended the connection"),
                        HasSubstr("it is about to leave the group, or is gone"),
                        HasSubstr("left the group, but this operation still needs it")));
    }
  }
}

}  // namespace
}  // namespace unisono
