// If only some ranks can detect the cause of an error, all waiting ranks receive the error with its
// original text. This includes ranks without a connection to the detecting ranks, while all
// processes continue to run.
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <latch>
#include <map>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/engine/backends.h"
#include "unisono/engine/engine.h"
#include "unisono/net/address.h"
#include "unisono/net/hello.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/store/hash_store.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/rank_table.h"

#include "support/ranks.h"

namespace unisono {
namespace {

using test::errors_of_ranks;
using test::World;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t kRanks = 4;

// Number of elements of a block. Blocks are large: each rank exchanges parts of blocks with several
// other ranks.
constexpr std::int64_t kBlock = 1 << 16;

const std::vector<std::vector<std::string>> kLayouts{{"a", "b", "a", "a"}, {"a", "a", "b", "b"}};

struct Operation {
  std::string name;
  std::function<void(ProcessGroup& group, DType dtype)> call;

  friend void PrintTo(const Operation& which, std::ostream* out) { *out << which.name; }
};

// Memory for `n` blocks of any type.
class Blocks {
 public:
  Blocks(std::int64_t n, DType dtype)
      : memory_(static_cast<std::size_t>(n * kBlock)), count_(n * kBlock), dtype_(dtype) {}

  [[nodiscard]] Buffer buffer() {
    return {.data = memory_.data(), .count = count_, .dtype = dtype_};
  }

 private:
  std::vector<double> memory_;
  std::int64_t count_;
  DType dtype_;
};

constexpr auto kAll = static_cast<std::int64_t>(kRanks);

const std::vector<Operation> kOperations{
    {"all_reduce",
     [](ProcessGroup& group, DType dtype) {
       Blocks data(kAll, dtype);
       group.all_reduce(data.buffer());
     }},
    {"all_gather",
     [](ProcessGroup& group, DType dtype) {
       Blocks in(1, dtype);
       Blocks out(kAll, dtype);
       group.all_gather(in.buffer(), out.buffer());
     }},
    {"reduce_scatter",
     [](ProcessGroup& group, DType dtype) {
       Blocks in(kAll, dtype);
       Blocks out(1, dtype);
       group.reduce_scatter(in.buffer(), out.buffer());
     }},
    {"all_to_all",
     [](ProcessGroup& group, DType dtype) {
       Blocks in(kAll, dtype);
       Blocks out(kAll, dtype);
       group.all_to_all(in.buffer(), out.buffer());
     }},
    {"reduce",
     [](ProcessGroup& group, DType dtype) {
       Blocks data(kAll, dtype);
       group.reduce(data.buffer(), data.buffer());
     }},
    {"broadcast",
     [](ProcessGroup& group, DType dtype) {
       Blocks data(kAll, dtype);
       group.broadcast(data.buffer());
     }},
};

// Runs the call, and keeps the rank in the group until all ranks have failed.
class UntilAllHaveFailed {
 public:
  explicit UntilAllHaveFailed(std::size_t n_ranks = kRanks)
      : have_failed_(static_cast<std::ptrdiff_t>(n_ranks)) {}

  void operator()(const std::function<void()>& call) {
    std::exception_ptr error;
    try {
      call();
    } catch (const std::exception&) {
      error = std::current_exception();
    }
    have_failed_.arrive_and_wait();
    if (error) {
      std::rethrow_exception(error);
    }
  }

 private:
  std::latch have_failed_;
};

::testing::Matcher<std::string> names_both_calls(const std::string& operation) {
  return AllOf(HasSubstr("ranks called " + operation + " with different types: "),
               HasSubstr("called " + operation + " #"),
               HasSubstr("(f32["),
               HasSubstr("(f64["),
               Not(HasSubstr("timed out")));
}

class EveryoneHears : public ::testing::TestWithParam<Operation> {};

// A rank that does not depend on the differing ranks may succeed, and receives the error in its
// next call.
TEST_P(EveryoneHears, OfAMismatch) {
  const Operation& operation = GetParam();
  for (const std::vector<std::string>& nodes : kLayouts) {
    for (const int odd : {2, 3}) {
      UntilAllHaveFailed until_all_have_failed;
      const auto errors = errors_of_ranks({.nodes = nodes}, [&](ProcessGroup& group) {
        until_all_have_failed([&] {
          operation.call(group, group.rank() == odd ? DType::kFloat64 : DType::kFloat32);
          group.barrier();
        });
      });
      EXPECT_THAT(errors, Each(names_both_calls(operation.name)))
          << "rank " << odd << " on nodes " << nodes[0] << nodes[1] << nodes[2] << nodes[3];
    }
  }
}

TEST_P(EveryoneHears, OfAMismatchInTheFirstCallOfANewGroup) {
  const Operation& operation = GetParam();
  for (const std::vector<std::string>& nodes : kLayouts) {
    UntilAllHaveFailed until_all_have_failed;
    const auto errors = errors_of_ranks({.nodes = nodes}, [&](ProcessGroup& world) {
      const auto group = world.new_group(std::vector{0, 1, 2, 3});
      until_all_have_failed([&] {
        operation.call(*group, group->rank() == 3 ? DType::kFloat64 : DType::kFloat32);
        group->barrier();
      });
    });
    EXPECT_THAT(errors, Each(names_both_calls(operation.name)))
        << "on nodes " << nodes[0] << nodes[1] << nodes[2] << nodes[3];
  }
}

INSTANTIATE_TEST_SUITE_P(Operations,
                         EveryoneHears,
                         ::testing::ValuesIn(kOperations),
                         ::testing::PrintToStringParamName());

// Rank 3 detects rank 2's different call. Ranks 0 and 1 wait for messages: rank 0 from one rank,
// rank 1 from any rank.
TEST(EveryoneWhoWaits, ForAMessageHearsOfAMismatchToo) {
  UntilAllHaveFailed until_all_have_failed;
  const auto errors = errors_of_ranks({.nodes = {"a", "b", "c", "c"}}, [&](ProcessGroup& group) {
    until_all_have_failed([&] {
      std::vector<float> data(4);
      const Buffer buffer = as_buffer(std::span(data));
      switch (group.rank()) {
        case 0:
          group.recv(buffer, 3);
          break;
        case 1:
          group.recv(buffer, kAnySource);
          break;
        case 2:
          group.barrier();
          break;
        default:
          group.all_reduce(buffer);
      }
    });
  });
  EXPECT_THAT(errors,
              Each(AllOf(HasSubstr("ranks called different operations"),
                         HasSubstr("called barrier #1"),
                         HasSubstr("called all_reduce #1"))));
}

TEST(EveryoneWhoWaits, SaysTheCauseAgainInEachLaterCall) {
  UntilAllHaveFailed until_all_have_failed;
  const auto errors = errors_of_ranks({.nodes = kLayouts[0]}, [&](ProcessGroup& group) {
    until_all_have_failed([&] {
      EXPECT_THROW(
          kOperations[0].call(group, group.rank() == 3 ? DType::kFloat64 : DType::kFloat32), Error);
    });
    group.barrier();
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("closed since"), names_both_calls("all_reduce"))));
}

// Ranks usually report such errors to each other through the store.
TEST(EveryoneWhoWaits, HearsOfAMismatchWithoutAStore) {
  const auto store = std::make_shared<store::HashStore>();
  UntilAllHaveFailed until_all_have_failed;
  std::vector<std::string> errors(kRanks);
  std::vector<std::thread> ranks;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto group = create_process_group(
          {.store = store,
           .connect_again = [](std::chrono::milliseconds) -> std::shared_ptr<store::Store> {
             throw Error(ErrorCode::kPeerLost, "the store is gone");
           },
           .rank = static_cast<int>(rank),
           .world_size = static_cast<int>(kRanks),
           .timeout = std::chrono::seconds(60),
           .environment = test::fake_environment(
               {{"UNISONO_NODE_ID", kLayouts[0][rank]}, {"UNISONO_ARENA_BYTES", "1G"}})});
      try {
        until_all_have_failed(
            [&] { kOperations[0].call(*group, rank == 2 ? DType::kFloat64 : DType::kFloat32); });
      } catch (const Error& error) {
        errors[rank] = error.what();
      }
      group->destroy();
    });
  }
  for (std::thread& thread : ranks) {
    thread.join();
  }
  EXPECT_THAT(errors, Each(names_both_calls("all_reduce")));
}

// Rank 1 waits in the store for rank 0, which does not arrive because the parent group has failed.
TEST(EveryoneWhoWaits, InTheStoreForANewGroupHearsOfAMismatchToo) {
  store::HashStore store;
  UntilAllHaveFailed until_all_have_failed;
  const auto errors = errors_of_ranks({.nodes = kLayouts[0]}, [&](ProcessGroup& group) {
    until_all_have_failed([&] {
      if (group.rank() == 1) {
        (void)group.new_group(std::vector{0, 1}, store);
      } else {
        kOperations[0].call(group, group.rank() == 2 ? DType::kFloat64 : DType::kFloat32);
      }
    });
  });
  EXPECT_THAT(errors, Each(names_both_calls("all_reduce")));
}

// Rank 2 can't create the group in which all others wait.
TEST(EveryoneWhoWaits, HearsOfARankThatCouldNotMakeTheGroup) {
  engine::register_backend(
      "lame",
      "fails on one rank, but for the group of all",
      [](const transport::RankTable& roster, std::shared_ptr<engine::Engine> native) {
        if (roster.world_size() < static_cast<int>(kRanks) && roster.self().job_rank == 2) {
          throw Error(ErrorCode::kSystem, "no device is left");
        }
        return native;
      });
  for (const std::vector<std::string>& nodes : kLayouts) {
    UntilAllHaveFailed until_all_have_failed;
    const World world{.nodes = nodes, .backend = "lame"};
    const auto errors = errors_of_ranks(world, [&](ProcessGroup& group) {
      until_all_have_failed([&] {
        const auto inner = group.new_group(std::vector{0, 1, 2});
        if (inner == nullptr) {
          throw Error(ErrorCode::kClosed, "not one of them: no device is left for it");
        }
        inner->barrier();
      });
    });
    EXPECT_THAT(errors, Each(AllOf(HasSubstr("no device is left"), Not(HasSubstr("timed out")))));
  }
}

// The arena of rank 2 has room only for the control block of the first group.
TEST(EveryoneWhoWaits, HearsOfARankThatHasNoRoomForTheGroup) {
  const World world{.nodes = kLayouts[0],
                    .own_environment = {{2, {{"UNISONO_ARENA_BYTES", "20M"}}}}};
  const auto errors = errors_of_ranks(world, [](ProcessGroup& group) {
    try {
      (void)group.new_group(std::vector{0, 1, 2});
    } catch (const Error&) {
      group.barrier();  // The parent group still works.
      throw;
    }
  });
  EXPECT_THAT(errors, Each(AnyOf(HasSubstr("rank 2 has no room"), HasSubstr("no room left"))));
}

// Returns a watcher's answer to a query, as ranks send before a stall report.
std::string answer_of(const transport::RankTable& roster, int rank) {
  const transport::Member& member = roster.members[static_cast<std::size_t>(rank)];
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  const Fd socket = net::connect_tcp(member.address, deadline);
  (void)net::connect_hello(
      socket.get(),
      "the test's secret",
      {.job = roster.job, .purpose = "control", .rank = roster.rank, .group = 0},
      deadline);
  net::write_all(socket.get(),
                 transport::encode({.kind = transport::FrameKind::kAsk, .question = 1}),
                 deadline,
                 "a rank");
  std::array<std::byte, 1> welcome{};
  net::read_exact(socket.get(), welcome, deadline, "a rank");
  transport::FrameBytes header{};
  net::read_exact(socket.get(), header, deadline, "a rank");
  const transport::Frame frame = transport::decode(header).value();
  std::vector<std::byte> text(frame.n_bytes);
  net::read_exact(socket.get(), text, deadline, "a rank");
  return frame.kind == transport::FrameKind::kAbort ? transport::decode_abort(frame, text).what()
                                                    : "no reason";
}

TEST(WhoGaveUp, SaysWhyToWhoAsksWhatItDoes) {
  std::latch has_failed(2);
  std::latch is_answered(1);
  test::run_ranks({.nodes = {"a", "b"}}, [&](ProcessGroup& group) {
    std::vector<float> data(4);
    EXPECT_THROW(group.all_reduce(as_buffer(std::span(data).first(group.rank() == 0 ? 4 : 3))),
                 Error);
    has_failed.arrive_and_wait();
    if (group.rank() == 1) {
      EXPECT_NO_THROW(EXPECT_THAT(answer_of(group.roster(), 0),
                                  HasSubstr("ranks called all_reduce with different sizes")));
      is_answered.count_down();
    }
    is_answered.wait();
  });
}

}  // namespace
}  // namespace unisono
