#include "unisono/net/ports.h"

#include <sys/poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <barrier>
#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"

namespace unisono::net {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Two adjacent unused ports on an address of this process alone.
class BindInRange : public ::testing::Test {
 protected:
  Address address_ = *Address::parse("127." + std::to_string(1 + ::getpid() % 250) + "." +
                                         std::to_string(::getpid() / 250 % 250) + ".7",
                                     0);
  PortRange ports_{.first = 23'001, .last = 23'002};
};

std::uint16_t port_of(const Fd& fd) {
  return local_address(fd.get()).port();
}

TEST_F(BindInRange, PortsAreTakenInTurnUntilNoneIsLeft) {
  const Fd first = listen_tcp(address_, ports_);
  const Fd second = listen_tcp(address_, ports_);
  EXPECT_EQ(port_of(first), 23'001);
  EXPECT_EQ(port_of(second), 23'002);
  EXPECT_THAT([&] { (void)listen_tcp(address_, ports_); },
              ThrowsMessage<Error>(
                  AllOf(HasSubstr("all ports from 23001 to 23002 are in use on " + address_.ip()),
                        HasSubstr("process " + std::to_string(::getpid())),
                        HasSubstr("UNISONO_PORTS"))));
}

TEST_F(BindInRange, AReservedPortIsNobodyElses) {
  const PortReservation reserved(address_, ports_);
  EXPECT_EQ(reserved.port(), 23'001);
  const Fd other = listen_tcp(address_, ports_);
  EXPECT_EQ(port_of(other), 23'002);
  const Fd own = listen_tcp(*Address::parse(address_.ip(), reserved.port()));
  EXPECT_EQ(port_of(own), 23'001);
}

TEST_F(BindInRange, AnEndedConnectionDoesNotKeepAPort) {
  {
    const Fd listener = listen_tcp(address_, {.first = 23'001, .last = 23'001});
    const Fd client =
        connect_tcp(local_address(listener.get()), Deadline::after(std::chrono::seconds(20)));
    const Fd server = accept_connection(listener.get()).fd;
    ASSERT_TRUE(server.is_open());
    // The side that closes first keeps the port for a minute.
    ASSERT_EQ(::shutdown(server.get(), SHUT_WR), 0);
  }
  const Fd again = listen_tcp(address_, {.first = 23'001, .last = 23'001});
  EXPECT_EQ(port_of(again), 23'001);
}

TEST_F(BindInRange, ThoseWhoComeAtOnceEachFindAPortWhereConnectionsLinger) {
  constexpr int kRanks = 4;
  const PortRange ports{.first = 23'001, .last = 23'001 + kRanks - 1};
  for (int round = 0; round < 30; ++round) {
    std::vector<std::thread> ranks;
    std::vector<std::string> errors(kRanks);
    std::barrier all(kRanks);
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([&, rank] {
        try {
          const Fd listener = listen_tcp(address_, ports);
          const Fd client =
              connect_tcp(local_address(listener.get()), Deadline::after(std::chrono::seconds(20)));
          const Fd server = accept_connection(listener.get()).fd;
          EXPECT_EQ(::shutdown(server.get(), SHUT_WR), 0);
          all.arrive_and_wait();
        } catch (const std::exception& error) {
          errors[static_cast<std::size_t>(rank)] = error.what();
          all.arrive_and_drop();
        }
      });
    }
    for (std::thread& rank : ranks) {
      rank.join();
    }
    ASSERT_THAT(errors, ::testing::Each(std::string())) << round;
  }
}

TEST_F(BindInRange, AsManyAsThereArePortsEachGetOne) {
  constexpr int kRanks = 8;
  const PortRange ports{.first = 23'001, .last = 23'001 + kRanks - 1};
  for (int round = 0; round < 30; ++round) {
    std::vector<std::thread> ranks;
    std::vector<std::string> errors(kRanks);
    std::barrier all(kRanks);
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([&, rank] {
        all.arrive_and_wait();
        Fd listener;
        try {
          listener = listen_tcp(address_, ports);
        } catch (const std::exception& error) {
          errors[static_cast<std::size_t>(rank)] = error.what();
        }
        all.arrive_and_wait();
      });
    }
    for (std::thread& rank : ranks) {
      rank.join();
    }
    ASSERT_THAT(errors, ::testing::Each(std::string())) << round;
  }
}

// Opens a socket for bind_in_range().
Fd open_socket() {
  return Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

TEST_F(BindInRange, APortThatTwoHaveLostToEachOtherIsTriedAgain) {
  int n_uses = 0;
  const Fd fd = bind_in_range(
      address_, {.first = 23'001, .last = 23'001}, open_socket, [&](int) { return ++n_uses > 1; });
  EXPECT_EQ(port_of(fd), 23'001);
  EXPECT_EQ(n_uses, 2);
}

TEST_F(BindInRange, AProcessThatIsSeldomLetRunLooksAsOftenAsOthers) {
  int n_uses = 0;
  const auto use = [&](int) {
    // Simulates the time in which other processes have run and taken the port.
    std::this_thread::sleep_for(std::chrono::milliseconds(70));
    return ++n_uses > 6;
  };
  const Fd fd = bind_in_range(address_, {.first = 23'001, .last = 23'001}, open_socket, use);
  EXPECT_EQ(port_of(fd), 23'001);
}

TEST_F(BindInRange, APortThatAnotherKeepsForAMomentIsWaitedFor) {
  const PortRange ports{.first = 23'001, .last = 23'001};
  Fd other = listen_tcp(address_, ports);
  int n_opened = 0;
  const auto open = [&] {
    if (++n_opened > 1) {
      other.reset();
    }
    return open_socket();
  };
  const Fd fd = bind_in_range(address_, ports, open, [](int) { return true; });
  EXPECT_EQ(port_of(fd), 23'001);
}

TEST_F(BindInRange, AnAddressOfAnotherMachineIsAnError) {
  EXPECT_THAT([&] { (void)listen_tcp(*Address::parse("192.0.2.1", 0), ports_); },
              ThrowsMessage<Error>(HasSubstr("bind to 192.0.2.1:23001")));
}

// Listens on the first address and connects to the second.
class SocketOwner : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(SocketOwner, IsFoundByBothEndsOfTheConnection) {
  const Deadline soon = Deadline::after(std::chrono::seconds(10));
  const Fd listener = listen_tcp(*Address::parse(GetParam().first, 0));
  const std::uint16_t port = local_address(listener.get()).port();
  const Fd client = connect_tcp(*Address::parse(GetParam().second, port), soon);
  ASSERT_TRUE(wait_for(listener.get(), POLLIN, soon));
  const Fd server = accept_connection(listener.get()).fd;
  // Both addresses from the perspective of the server.
  const Address ours = local_address(server.get());
  const Address theirs = peer_address(server.get());
  EXPECT_EQ(find_socket_owner(theirs, ours), ::geteuid());
  EXPECT_EQ(find_socket_owner(theirs, *Address::parse(GetParam().second, 1)), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(Families,
                         SocketOwner,
                         ::testing::Values(std::pair("127.0.0.1", "127.0.0.1"),
                                           std::pair("::1", "::1"),
                                           std::pair("::", "127.0.0.1"),
                                           std::pair("::", "::1")));

TEST(SocketOwner, OfNoConnectionThereIsNone) {
  EXPECT_EQ(find_socket_owner(*Address::parse("127.0.0.1", 1), *Address::parse("127.0.0.1", 2)),
            std::nullopt);
}

}  // namespace
}  // namespace unisono::net
