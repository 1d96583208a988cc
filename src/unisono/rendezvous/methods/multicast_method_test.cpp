#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/rendezvous/methods/builtin_methods.h"
#include "unisono/rendezvous/methods/discovery.h"
#include "unisono/rendezvous/testing/ranks.h"

namespace unisono::rendezvous {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A group of this process alone, because other test runs may be active at the same time.
std::string group() {
  return "tcp://239.85." + std::to_string(::getpid() / 256 % 256) + "." +
         std::to_string(::getpid() % 256) + ":43301";
}

// Returns the error of a process that expects this number of ranks.
std::string message_of(int world_size, std::chrono::milliseconds timeout, ErrorCode code) {
  base::Config config;
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

// The first process leaves as soon as it receives the announcement of the second process, which has
// not received any announcement by then.
TEST(MulticastMethod, ProcessesThatContradictEachOtherAllHearIt) {
  const auto hear = [](int world_size) {
    return message_of(world_size, std::chrono::seconds(30), ErrorCode::kInvalidArgument);
  };
  std::future<std::string> first = std::async(std::launch::async, hear, 2);
  ASSERT_EQ(first.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
  EXPECT_THAT(hear(5), AllOf(HasSubstr("5 here"), HasSubstr("2 at pid ")));
  EXPECT_THAT(first.get(), AllOf(HasSubstr("2 here"), HasSubstr("5 at pid ")));
}

using std::chrono::seconds;

const PeerDiscovery::Time kStart{};

Announcement process(std::uint64_t id, int world_size = 3, const std::string& group = "job") {
  return {.group_name = group,
          .id = id,
          .world_size = world_size,
          .pid = static_cast<std::int64_t>(100 + id),
          .host = "node-a",
          .store_port = static_cast<std::uint16_t>(5000 + id)};
}

std::string address_of(std::uint64_t id) {
  return "10.0.0." + std::to_string(id);
}

constexpr unsigned kInterface = 5;
constexpr unsigned kDeadEnd = 4;

PeerDiscovery::Source source_of(std::uint64_t id) {
  return {.address = address_of(id), .interface = kInterface};
}

// All processes exchange announcements, in enough rounds to forward indirect information.
void talk(std::vector<PeerDiscovery>& all,
          const std::vector<std::uint64_t>& ids,
          PeerDiscovery::Time now) {
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Announcement said = all[i].announce(now);
      for (PeerDiscovery& each : all) {
        each.hear(said, source_of(ids[i]), now);
      }
    }
  }
}

std::vector<PeerDiscovery> gather(const std::vector<std::uint64_t>& ids, int world_size = 3) {
  std::vector<PeerDiscovery> all;
  for (const std::uint64_t id : ids) {
    all.emplace_back(process(id, world_size));
  }
  talk(all, ids, kStart);
  return all;
}

TEST(PeerDiscovery, RanksGoByTheIdsAndAllKnowTheMaster) {
  const std::vector<PeerDiscovery> all = gather({7, 3, 9});
  const std::vector<int> ranks{1, 0, 2};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::optional<PeerDiscovery::Agreement> place = all[i].agreement();
    ASSERT_TRUE(place.has_value());
    EXPECT_EQ(place->rank, ranks[i]);
    EXPECT_EQ(place->master_address, "10.0.0.3");
    EXPECT_EQ(place->master_port, 5003);
  }
}

// Anna and Bert are on one node. Its first interface has no route to other nodes. When all
// processes agree, Anna and Bert have received each other's announcements only through that
// interface.
TEST(PeerDiscovery, TheMastersAddressIsOnTheNetworkThatReachesOtherNodes) {
  const PeerDiscovery::Source dead_end{.address = "172.17.0.1", .interface = kDeadEnd};
  const PeerDiscovery::Source here = source_of(1);
  const PeerDiscovery::Source elsewhere = source_of(3);
  PeerDiscovery anna(process(1));
  PeerDiscovery bert(process(2));
  PeerDiscovery carl(process(3));
  for (int round = 0; round < 2; ++round) {
    const Announcement by_anna = anna.announce(kStart);
    const Announcement by_bert = bert.announce(kStart);
    const Announcement by_carl = carl.announce(kStart);
    for (PeerDiscovery* each : {&anna, &bert}) {
      each->hear(by_anna, dead_end, kStart);
      each->hear(by_bert, dead_end, kStart);
      each->hear(by_carl, elsewhere, kStart);
    }
    anna.hear(by_anna, here, kStart);
    bert.hear(by_bert, here, kStart);
    carl.hear(by_anna, here, kStart);
    carl.hear(by_bert, here, kStart);
    carl.hear(by_carl, elsewhere, kStart);
  }
  for (const PeerDiscovery* each : {&anna, &bert, &carl}) {
    EXPECT_EQ(each->agreement()->master_address, here.address);
  }
}

TEST(PeerDiscovery, OfSeveralNetworksThatReachAllTheFirstCounts) {
  PeerDiscovery anna(process(1, 2));
  PeerDiscovery bert(process(2, 2));
  for (int round = 0; round < 2; ++round) {
    for (const unsigned interface : {9U, 8U}) {
      const std::string network = "10.0." + std::to_string(interface) + ".";
      for (PeerDiscovery* each : {&anna, &bert}) {
        each->hear(
            anna.announce(kStart), {.address = network + "1", .interface = interface}, kStart);
        each->hear(
            bert.announce(kStart), {.address = network + "2", .interface = interface}, kStart);
      }
    }
  }
  EXPECT_EQ(anna.agreement()->master_address, "10.0.8.1");
  EXPECT_EQ(bert.agreement()->master_address, "10.0.8.1");
}

TEST(PeerDiscovery, OneProcessIsEnoughForAWorldOfOne) {
  EXPECT_EQ(gather({7}, 1)[0].agreement()->rank, 0);
}

TEST(PeerDiscovery, NobodyIsSureBeforeAllOthersKnowTheSame) {
  PeerDiscovery anna(process(1));
  anna.hear(process(1), source_of(1), kStart);
  anna.hear(process(2), source_of(2), kStart);
  anna.hear(process(3), source_of(3), kStart);
  EXPECT_EQ(anna.agreement(), std::nullopt) << "the others may have heard of somebody else";
}

TEST(PeerDiscovery, OneTooManyKeepsAllFromAgreeing) {
  for (const PeerDiscovery& each : gather({1, 2, 3, 4})) {
    EXPECT_EQ(each.agreement(), std::nullopt);
    EXPECT_THAT(each.describe(), HasSubstr("4 of 3 processes are here"));
  }
}

TEST(PeerDiscovery, WhoFallsSilentHasGone) {
  const std::vector<std::uint64_t> ids{1, 2, 3};
  std::vector<PeerDiscovery> all = gather({1, 2, 3, 4});
  all.pop_back();
  talk(all, ids, kStart + seconds(2));
  EXPECT_EQ(all[0].agreement(), std::nullopt);
  talk(all, ids, kStart + seconds(4));
  EXPECT_EQ(all[0].agreement()->rank, 0);
  EXPECT_EQ(all[2].agreement()->rank, 2);
}

TEST(PeerDiscovery, OtherGroupsDoNotCount) {
  PeerDiscovery anna(process(1));
  anna.hear(process(2, 5, "other"), source_of(2), kStart);
  EXPECT_THAT(anna.describe(), HasSubstr("1 of 3 processes are here: pid 101 on node-a"));
}

TEST(PeerDiscovery, DifferentWorldSizesAreNamed) {
  PeerDiscovery anna(process(1));
  EXPECT_THAT([&] { anna.hear(process(2, 5), source_of(2), kStart); },
              ::testing::ThrowsMessage<Error>(AllOf(HasSubstr("3 here (pid 101 on node-a)"),
                                                    HasSubstr("5 at pid 102 on node-a"))));
}

TEST(Announcement, ComesThroughForThoseWhoKnowTheSecret) {
  const Announcement said = process(7);
  for (const char* secret : {"", "secret"}) {
    const std::vector<std::byte> bytes = encode(said, secret);
    EXPECT_EQ(decode_announcement(bytes, secret), said);
    EXPECT_EQ(decode_announcement(bytes, "guess"), std::nullopt);
  }
}

TEST(Announcement, OtherBytesAreNone) {
  const std::vector<std::byte> bytes = encode(process(7), "secret");
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_EQ(decode_announcement(std::span(bytes).first(n), "secret"), std::nullopt);
    std::vector<std::byte> changed = bytes;
    changed[n] ^= std::byte{1};
    EXPECT_EQ(decode_announcement(changed, "secret"), std::nullopt);
  }
}

}  // namespace
}  // namespace unisono::rendezvous
