#include "unisono/peers/group_registry.h"

#include <type_traits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/peers/control_plane.h"

namespace unisono::peers {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A group for these tests, which ignores all events. The registry only passes the group to event
// handlers.
class SilentGroup final : public MonitoredGroup {
 public:
  void note_abort(int /*job_rank*/, const Error& /*reason*/) override {}

  void note_end(int /*job_rank*/, ControlLink::End /*how*/) override {}

  void deliver(const net::HelloInfo& /*peer*/,
               Fd /*socket*/,
               const std::optional<Error>& /*shortage*/) override {}

  void listen_for_messages() noexcept override {}

  void give_up(const Error& /*error*/) noexcept override {}

  [[nodiscard]] std::optional<Error> find_failure() const override { return std::nullopt; }

  [[nodiscard]] std::optional<transport::RankProgress> own_progress() const override {
    return std::nullopt;
  }

  [[nodiscard]] std::string describe_activity() const override { return ""; }

  [[nodiscard]] std::optional<transport::Stall> find_wait(
      const transport::WaitId& /*id*/) const override {
    return std::nullopt;
  }

  [[nodiscard]] std::optional<transport::Stall> find_wait_of(
      std::uint64_t /*thread*/) const override {
    return std::nullopt;
  }

  [[nodiscard]] std::optional<transport::Stall> find_stuck_wait(
      const transport::Stall& /*waiter*/) const override {
    return std::nullopt;
  }

  [[nodiscard]] bool has_reported_failure() noexcept override { return false; }

  void set_deadlock(const Error& /*verdict*/) override {}

  void end_with(const Error& /*verdict*/) override {}
};

constexpr std::uint32_t kWorld = 0;
constexpr std::uint32_t kNumber = 1;

TEST(GroupRegistry, WhatComesBeforeAGroupIsMadeIsKeptForIt) {
  GroupRegistry registry;
  std::vector<std::string> heard;
  registry.notify(kWorld, [&](MonitoredGroup&) { heard.emplace_back("bye"); });
  registry.notify_all([&](MonitoredGroup&) { heard.emplace_back("closed"); });
  EXPECT_THAT(heard, IsEmpty());
  registry.add(kWorld, std::make_shared<SilentGroup>());
  EXPECT_THAT(heard, ElementsAre("bye", "closed"));
  registry.notify(kWorld, [&](MonitoredGroup&) { heard.emplace_back("at once"); });
  EXPECT_THAT(heard, ElementsAre("bye", "closed", "at once"));
}

TEST(GroupRegistry, WhatComesWhileAGroupHearsOfEarlierThingsWaitsItsTurn) {
  GroupRegistry registry;
  std::vector<std::string> heard;
  registry.notify(kWorld, [&](MonitoredGroup&) {
    // Simulates an event from another thread at this moment: a rank left, and then its socket
    // closed.
    registry.notify_all([&](MonitoredGroup&) { heard.emplace_back("closed"); });
    heard.emplace_back("bye");
  });
  registry.add(kWorld, std::make_shared<SilentGroup>());
  EXPECT_THAT(heard, ElementsAre("bye", "closed"));
}

TEST(GroupRegistry, AGroupThatEndedHearsNothing) {
  GroupRegistry registry;
  std::vector<std::string> heard;
  registry.add(kWorld, std::make_shared<SilentGroup>());
  registry.end(kWorld, {});
  registry.notify(kWorld, [&](MonitoredGroup&) { heard.emplace_back("bye"); });
  registry.notify_all([&](MonitoredGroup&) { heard.emplace_back("closed"); });
  EXPECT_THAT(heard, IsEmpty());
}

TEST(GroupRegistry, NothingIsKeptForAGroupThatIsNotMade) {
  GroupRegistry registry;
  const auto kept = std::make_shared<int>();
  registry.notify(kNumber, [kept](MonitoredGroup&) {});
  EXPECT_EQ(kept.use_count(), 1);
  registry.expect(kNumber);
  registry.notify(kNumber, [kept](MonitoredGroup&) {});
  EXPECT_EQ(kept.use_count(), 2);
  registry.forget(kNumber);
  EXPECT_EQ(kept.use_count(), 1);
}

TEST(GroupRegistry, AGroupThatWasMadeIsNotForgotten) {
  GroupRegistry registry;
  registry.expect(kNumber);
  registry.add(kNumber, std::make_shared<SilentGroup>());
  registry.forget(kNumber);
  bool has_heard = false;
  registry.notify(kNumber, [&](MonitoredGroup&) { has_heard = true; });
  EXPECT_TRUE(has_heard);
}

bool has_left(const GroupRegistry& registry, std::uint32_t number, int job_rank) {
  const transport::Departure departure = registry.find_departure(number, job_rank);
  return departure.from_operations && departure.from_messages;
}

TEST(GroupRegistry, TellsAGroupThatItLeftFromOneThatItHasNotMadeYet) {
  constexpr int kStranger = 3;
  GroupRegistry registry;
  EXPECT_FALSE(has_left(registry, kNumber, kStranger));
  registry.expect(kNumber);
  EXPECT_FALSE(has_left(registry, kNumber, kStranger));
  registry.add(kNumber, std::make_shared<SilentGroup>());
  EXPECT_FALSE(has_left(registry, kNumber, kStranger));
  registry.end(kNumber, {.by_operations = {4, 5}, .by_messages = {4, 6}});
  EXPECT_TRUE(has_left(registry, kNumber, kStranger));
  EXPECT_FALSE(has_left(registry, kNumber, 4));
  EXPECT_FALSE(registry.find_departure(kNumber, 4).from_messages);
  EXPECT_FALSE(registry.find_departure(kNumber, 5).from_operations);
  EXPECT_TRUE(registry.find_departure(kNumber, 5).from_messages);
  EXPECT_TRUE(registry.find_departure(kNumber, 6).from_operations);
  EXPECT_FALSE(registry.find_departure(kNumber, 6).from_messages);
}

// A group that was created late may have a small number.
TEST(GroupRegistry, RemembersTheGroupsThatItLeftLast) {
  constexpr std::uint32_t kMany = 5000;
  GroupRegistry registry;
  for (std::uint32_t number = 2; number < kMany; ++number) {
    registry.end(number, {});
  }
  registry.end(kNumber, {});
  EXPECT_TRUE(has_left(registry, kNumber, 0));
  EXPECT_TRUE(has_left(registry, kMany - 1, 0));
  EXPECT_FALSE(has_left(registry, 2, 0));
}

}  // namespace
}  // namespace unisono::peers
