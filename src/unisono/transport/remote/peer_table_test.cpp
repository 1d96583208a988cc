#include "unisono/transport/remote/peer_table.h"

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <deque>
#include <span>
#include <stop_token>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/net/address.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/transport/remote/frame_stream.h"

namespace unisono::tcp {
namespace {

using ::testing::HasSubstr;

constexpr std::chrono::seconds kPatience{10};

// One of two ranks on two nodes, driven by this thread. The rank dials, and accepts connections at
// its data listener as a watcher does.
class Rank {
 public:
  using Members = std::vector<transport::RankAddress>;

  // Handles a connection after its hello.
  using Take = std::function<void(Rank&, Fd)>;

  Rank(int rank, DialingRank caller, Fd listener, const Members& members)
      : rank_(rank),
        mine_{.job = "job", .purpose = "test", .rank = rank},
        listener_(std::move(listener)),
        table_({.members = members,
                .secret = "secret",
                .mine = mine_,
                .caller = caller,
                .make_stream = prepare_streams(),
                .has_other_nodes = true},
               [](int, const std::string& name, std::unique_ptr<transport::Stream> stream) {
                 return std::make_unique<PacketStream>(name, 0, std::move(stream));
               }) {}

  PeerTable<PacketStream>& table() { return table_; }

  [[nodiscard]] int n_accepted() const { return n_accepted_; }

  // Number of accepted connections that ended during the hello.
  [[nodiscard]] int n_broken_off() const { return n_broken_off_; }

  // Replaces the handler of connections. The default delivers connections to the table.
  void take_by(Take take) { take_ = std::move(take); }

  void hang_up() { listener_.reset(); }

  // Makes progress for all activities of this rank.
  void step() {
    (void)table_.progress();
    serve();
  }

  // Does the work of the rank's watcher.
  void serve() {
    for (net::Accepted accepted = accept(); accepted.fd.is_open(); accepted = accept()) {
      ++n_accepted_;
      pending_.push_back({.socket = std::move(accepted.fd),
                          .hello = net::Hello(net::Hello::Side::kServer, "secret", mine_)});
    }
    for (PendingConnection& pending : pending_) {
      greet(pending);
    }
    std::erase_if(pending_,
                  [](const PendingConnection& pending) { return !pending.socket.is_open(); });
  }

 private:
  struct PendingConnection {
    Fd socket;
    net::Hello hello;
  };

  net::Accepted accept() {
    return listener_.is_open() ? net::accept_connection(listener_.get()) : net::Accepted{};
  }

  void greet(PendingConnection& pending) {
    std::array<std::byte, 1024> buffer{};
    const int fd = pending.socket.get();
    while (pending.hello.state() == net::Hello::State::kRunning) {
      const net::IoResult read =
          net::read_some(fd, std::span(buffer).first(pending.hello.n_bytes_wanted()));
      if (read.status != net::IoStatus::kDone) {
        if (read.status != net::IoStatus::kWouldBlock) {
          pending.socket.reset();
          ++n_broken_off_;
        }
        return;
      }
      (void)pending.hello.feed(std::span(buffer).first(read.n_bytes));
      const std::vector<std::byte> output = pending.hello.take_output();
      EXPECT_EQ(net::write_some(fd, output).n_bytes, output.size());
    }
    EXPECT_EQ(pending.hello.state(), net::Hello::State::kDone);
    take_(*this, std::move(pending.socket));
  }

  int rank_;
  net::HelloInfo mine_;
  Fd listener_;
  PeerTable<PacketStream> table_;
  std::deque<PendingConnection> pending_;
  int n_accepted_ = 0;
  int n_broken_off_ = 0;
  Take take_ = [](Rank& self, Fd socket) {
    self.table_.deliver(1 - self.rank_, std::move(socket));
  };
};

// Two ranks with each other's addresses.
struct Pair {
  explicit Pair(DialingRank caller) {
    std::array<Fd, 2> listeners;
    Rank::Members members;
    for (int rank = 0; rank < 2; ++rank) {
      Fd& listener = listeners[static_cast<std::size_t>(rank)];
      listener = net::listen_tcp(net::Address::loopback(0));
      members.push_back({.job_rank = rank,
                         .address = net::local_address(listener.get()),
                         .name = "rank " + std::to_string(rank)});
    }
    lower = std::make_unique<Rank>(0, caller, std::move(listeners[0]), members);
    higher = std::make_unique<Rank>(1, caller, std::move(listeners[1]), members);
  }

  // Returns true if `is_over` becomes true within the time limit.
  bool run_until(const std::function<bool()>& is_over) const {
    const Deadline deadline = Deadline::after(kPatience);
    while (!is_over() && !deadline.has_passed()) {
      lower->step();
      higher->step();
      std::vector<pollfd> polls;
      (void)::poll(polls.data(), 0, 1);
    }
    return is_over();
  }

  [[nodiscard]] bool is_open() const {
    return lower->table().find(1) != nullptr && higher->table().find(0) != nullptr;
  }

  // Returns true if both ends belong to one connection that has carried only frames.
  [[nodiscard]] bool is_sound() const {
    PacketStream& from = *lower->table().find(1);
    PacketStream& to = *higher->table().find(0);
    from.frames().say_goodbye();
    return run_until([&] { return to.peek() == nullptr && to.has_left(); });
  }

  // Returns the first error within the time limit; "" if there is no error.
  [[nodiscard]] std::string find_error() const {
    try {
      (void)run_until([] { return false; });
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  std::unique_ptr<Rank> lower;
  std::unique_ptr<Rank> higher;
};

class BothCallers : public ::testing::TestWithParam<DialingRank> {};

TEST_P(BothCallers, OpenOneConnectionByEitherRank) {
  for (const bool is_by_lower : {false, true}) {
    const Pair pair(GetParam());
    (is_by_lower ? pair.lower : pair.higher)->table().open(is_by_lower ? 1 : 0);
    ASSERT_TRUE(pair.run_until([&] { return pair.is_open(); }));
    EXPECT_TRUE(pair.is_sound());
    EXPECT_EQ(pair.lower->n_accepted(), is_by_lower ? 0 : 1);
    EXPECT_EQ(pair.higher->n_accepted(), is_by_lower ? 1 : 0);
  }
}

// The other connection is rejected after the hello and not broken off.
TEST_P(BothCallers, KeepTheHigherRanksConnectionOfTwo) {
  const Pair pair(GetParam());
  pair.lower->table().open(1);
  pair.higher->table().open(0);
  ASSERT_TRUE(pair.run_until([&] { return pair.is_open(); }));
  ASSERT_TRUE(pair.run_until([&] { return !pair.lower->table().is_dialing(); }));
  EXPECT_FALSE(pair.higher->table().is_dialing());
  EXPECT_TRUE(pair.is_sound());
  EXPECT_EQ(pair.lower->n_accepted(), 1);
  EXPECT_EQ(pair.higher->n_accepted(), GetParam() == DialingRank::kEither ? 1 : 0);
  EXPECT_EQ(pair.higher->n_broken_off(), 0);
}

TEST_P(BothCallers, SayThatNobodyListens) {
  for (const bool is_lower : {false, true}) {
    const Pair pair(GetParam());
    (is_lower ? pair.higher : pair.lower)->hang_up();
    (is_lower ? pair.lower : pair.higher)->table().open(is_lower ? 1 : 0);
    EXPECT_THAT(
        pair.find_error(),
        HasSubstr(is_lower ? "rank 1 has left the group, or is gone: no process listens at "
                           : "rank 0 has left the group, or is gone: no process listens at "));
  }
}

// A reset does not mean that no process listens, so the dialer tries again.
TEST_P(BothCallers, TryAgainAfterAReset) {
  const Pair pair(GetParam());
  int n_reset = 0;
  pair.higher->take_by([&](Rank& self, Fd socket) {
    if (++n_reset > 1) {
      self.table().deliver(0, std::move(socket));
      return;
    }
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    ASSERT_EQ(::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
  });
  pair.lower->table().open(1);
  ASSERT_TRUE(pair.run_until([&] { return pair.is_open(); }));
  EXPECT_EQ(n_reset, 2);
}

INSTANTIATE_TEST_SUITE_P(Dialer,
                         BothCallers,
                         ::testing::Values(DialingRank::kEither, DialingRank::kHigherRank));

TEST(Dialer, LeavesTheHigherRankTimeToDial) {
  const auto time_to_open = [](DialingRank caller) {
    const Pair pair(caller);
    const auto begin = std::chrono::steady_clock::now();
    pair.lower->table().open(1);
    EXPECT_TRUE(pair.run_until([&] { return pair.is_open(); }));
    return std::chrono::steady_clock::now() - begin;
  };
  EXPECT_GE(time_to_open(DialingRank::kHigherRank), std::chrono::milliseconds(250));
  EXPECT_LT(time_to_open(DialingRank::kEither), std::chrono::milliseconds(250));
}

// Only a lower rank is rejected by a rank that has not left.
TEST(Dialer, TakesBeingTurnedAwayForALeaveWhereTheHigherRankCalls) {
  const Pair pair(DialingRank::kHigherRank);
  pair.lower->take_by([](Rank&, const Fd&) {});
  pair.higher->table().open(0);
  EXPECT_THAT(pair.find_error(),
              HasSubstr("has left the group, or is gone: it ended the connection before its part "
                        "of the operation arrived"));
}

TEST(Dialer, DialsAgainWhereBeingTurnedAwayMayMeanAnythingElse) {
  for (const bool is_lower : {false, true}) {
    const Pair pair(is_lower ? DialingRank::kHigherRank : DialingRank::kEither);
    Rank& caller = is_lower ? *pair.lower : *pair.higher;
    Rank& called = is_lower ? *pair.higher : *pair.lower;
    const int rank = is_lower ? 0 : 1;
    called.take_by([rank](Rank& self, Fd socket) {
      if (self.n_accepted() > 2) {
        self.table().deliver(rank, std::move(socket));
      }
    });
    caller.table().open(1 - rank);
    ASSERT_TRUE(pair.run_until([&] { return pair.is_open(); }));
    EXPECT_TRUE(pair.is_sound());
    EXPECT_EQ(called.n_accepted(), 3);
  }
}

TEST(Dialer, RefusesWhatIsNoWelcome) {
  const Pair pair(DialingRank::kEither);
  pair.higher->take_by([](Rank&, const Fd& socket) {
    const std::byte nonsense{0};
    EXPECT_EQ(net::write_some(socket.get(), std::span(&nonsense, 1)).n_bytes, 1U);
  });
  pair.lower->table().open(1);
  EXPECT_THAT(pair.find_error(), HasSubstr("rank 1 sent an unexpected handshake reply"));
}

// No peer waits for the accept byte of a connection that is closed or that arrived later.
TEST(Dialer, DropsWhatIsDeliveredOnceThereIsAConnection) {
  const Pair pair(DialingRank::kEither);
  pair.lower->table().open(1);
  ASSERT_TRUE(pair.run_until([&] { return pair.is_open(); }));
  const auto before = pair.lower->table().peers();
  Fd listener = net::listen_tcp(net::Address::loopback(0));
  const net::Connecting theirs = net::begin_connect(net::local_address(listener.get()));
  ASSERT_TRUE(net::wait_for(listener.get(), POLLIN, Deadline::after(kPatience)));
  pair.lower->table().deliver(1, net::accept_connection(listener.get()).fd);
  EXPECT_TRUE(pair.lower->table().progress().empty());
  EXPECT_EQ(pair.lower->table().peers(), before);
  EXPECT_TRUE(pair.is_sound());
}

// Data that a rank sent before it left may be in transit. Only a later refusal shows that no data
// will arrive.
TEST(Dialer, TakesTheResetOfAListenerThatEndsForARefusal) {
  const Pair pair(DialingRank::kEither);
  pair.lower->table().open(1);
  pair.higher->hang_up();
  EXPECT_TRUE(pair.lower->table().progress().empty());
  EXPECT_THAT(pair.find_error(), HasSubstr("no process listens at "));
}

// A rank that has sent all its data leaves at once. Its delivered connection counts, and not the
// missing listener.
TEST(Dialer, DoesNotDialWhoseConnectionWasDelivered) {
  const Pair pair(DialingRank::kHigherRank);
  Rank& lower = *pair.lower;
  Rank& higher = *pair.higher;
  lower.table().open(1);
  for (const Deadline deadline = Deadline::after(kPatience);
       lower.table().find(1) == nullptr && !deadline.has_passed();) {
    lower.step();
    higher.serve();
  }
  lower.hang_up();
  higher.table().open(0);
  EXPECT_FALSE(higher.table().is_dialing());
  EXPECT_EQ(higher.table().progress(), std::vector{0});
  EXPECT_TRUE(pair.is_sound());
}

// An accept byte before the end would make a clean leave look like a crash.
TEST(Dialer, DoesNotWelcomeWhoeverComesOnceItsDoorIsClosed) {
  for (const bool is_closed : {false, true}) {
    const Pair pair(DialingRank::kHigherRank);
    if (is_closed) {
      pair.lower->table().close_door();
    }
    pair.higher->table().open(0);
    if (is_closed) {
      EXPECT_THAT(pair.find_error(), HasSubstr("it ended the connection before"));
    } else {
      EXPECT_TRUE(pair.run_until([&] { return pair.is_open(); }));
    }
    EXPECT_EQ(pair.lower->table().peers().size(), is_closed ? 0U : 1U);
  }
}

// Otherwise the listener would report a stranger that left during its hello.
TEST(Dialer, GoesOnWithTheHelloOfADialThatIsNeedless) {
  const Pair pair(DialingRank::kEither);
  Rank& lower = *pair.lower;
  Rank& higher = *pair.higher;
  lower.table().open(1);
  higher.table().open(0);
  for (const Deadline deadline = Deadline::after(kPatience);
       lower.table().find(1) == nullptr && !deadline.has_passed();) {
    (void)higher.table().progress();
    lower.step();
  }
  EXPECT_TRUE(lower.table().is_dialing());
  ASSERT_TRUE(pair.run_until([&] { return pair.is_open() && !lower.table().is_dialing(); }));
  EXPECT_EQ(higher.n_accepted(), 1);
  EXPECT_EQ(higher.n_broken_off(), 0);
  EXPECT_TRUE(pair.is_sound());
}

TEST(Dialer, FinishesItsDialsBeforeItEnds) {
  const Pair pair(DialingRank::kEither);
  pair.lower->table().open(1);
  pair.lower->table().finish_dials(Deadline::after(std::chrono::milliseconds(50)));
  EXPECT_TRUE(pair.lower->table().is_dialing());
  const std::jthread other([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      pair.higher->step();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  pair.lower->table().finish_dials(Deadline::after(kPatience));
  EXPECT_FALSE(pair.lower->table().is_dialing());
  EXPECT_NE(pair.lower->table().find(1), nullptr);
}

}  // namespace
}  // namespace unisono::tcp
