#include "unisono/net/unauthenticated_connections.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <gtest/gtest.h>

namespace unisono::net {
namespace {

using std::chrono::milliseconds;

// Of a listener with two places.
constexpr milliseconds kSilentTime{2};

TEST(UnauthenticatedConnections, TheOldestGoesWhenItsTimeIsOver) {
  UnauthenticatedConnections strangers(2);
  const UnauthenticatedConnections::Time start;
  strangers.add(7, start);
  EXPECT_FALSE(strangers.is_full());
  strangers.add(3, start + milliseconds(1));
  EXPECT_TRUE(strangers.is_full());
  EXPECT_EQ(strangers.overdue(start + kSilentTime - milliseconds(1)), std::nullopt);
  EXPECT_EQ(strangers.overdue(start + kSilentTime), 7U);
  EXPECT_TRUE(strangers.remove(7));
  EXPECT_FALSE(strangers.remove(7));
  EXPECT_EQ(strangers.size(), 1U);
  EXPECT_EQ(strangers.overdue(start + kSilentTime), std::nullopt);
  EXPECT_EQ(strangers.next_due(), start + kSilentTime + milliseconds(1));
  EXPECT_EQ(strangers.overdue(start + kSilentTime + milliseconds(1)), 3U);
  EXPECT_TRUE(strangers.remove(3));
  EXPECT_EQ(strangers.overdue(start + kHandshakeTime * 2), std::nullopt);
}

TEST(UnauthenticatedConnections, WhoHasSaidSomethingHasMoreTime) {
  UnauthenticatedConnections strangers(2);
  const UnauthenticatedConnections::Time start;
  strangers.add(1, start);
  strangers.add(2, start + milliseconds(1));
  strangers.note_word(1);
  EXPECT_EQ(strangers.overdue(start + kHandshakeTime - milliseconds(1)), 2U);
  EXPECT_TRUE(strangers.remove(2));
  EXPECT_EQ(strangers.overdue(start + kHandshakeTime - milliseconds(1)), std::nullopt);
  EXPECT_EQ(strangers.overdue(start + kHandshakeTime), 1U);
  EXPECT_TRUE(strangers.remove(1));
  strangers.note_word(1);
  EXPECT_EQ(strangers.size(), 0U);
}

TEST(UnauthenticatedConnections, AThousandSilentOnesPassInASecond) {
  for (const std::size_t most : {16U, 32U, 256U}) {
    UnauthenticatedConnections strangers(most);
    UnauthenticatedConnections::Time now;
    for (std::uint64_t id = 0; id < 1000; ++id) {
      if (strangers.is_full()) {
        now = std::max(now, strangers.next_due());
        EXPECT_TRUE(strangers.remove(strangers.overdue(now).value()));
      }
      strangers.add(id, now);
    }
    EXPECT_LE(now, UnauthenticatedConnections::Time() + std::chrono::seconds(1)) << most;
  }
}

TEST(UnauthenticatedConnections, ThoseOfTheSameMomentAreKeptApart) {
  UnauthenticatedConnections strangers(2);
  const UnauthenticatedConnections::Time start;
  strangers.add(1, start);
  strangers.add(2, start);
  EXPECT_TRUE(strangers.remove(1));
  EXPECT_EQ(strangers.overdue(start + kSilentTime), 2U);
}

}  // namespace
}  // namespace unisono::net
