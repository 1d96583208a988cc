#include "unisono/base/visible_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace unisono {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(VisibleDevices, AreNumbersOrUuids) {
  EXPECT_THAT(parse_visible_devices("0").names, ElementsAre("0"));
  EXPECT_THAT(parse_visible_devices("3, 1").names, ElementsAre("3", "1"));
  EXPECT_THAT(parse_visible_devices("GPU-8c4d,MIG-77").names, ElementsAre("GPU-8c4d", "MIG-77"));
  EXPECT_EQ(parse_visible_devices("3,1").problem, "");
}

TEST(VisibleDevices, MayBeNone) {
  for (const char* text : {"", "-1", "-1,0"}) {
    EXPECT_THAT(parse_visible_devices(text).names, IsEmpty()) << text;
    EXPECT_EQ(parse_visible_devices(text).problem, "") << text;
  }
  EXPECT_THAT(parse_visible_devices("1,-1,0").names, ElementsAre("1"));
}

TEST(VisibleDevices, EndAtTheFirstThatIsWrongWhichIsNamed) {
  const VisibleDevices devices = parse_visible_devices("0,one,2");
  EXPECT_THAT(devices.names, ElementsAre("0"));
  EXPECT_THAT(devices.problem, HasSubstr("\"one\""));
  for (const char* text : {"abc", "1 2", "0;1", ",0", "0,,1", "-2", "GPU-", "99999999999"}) {
    EXPECT_NE(parse_visible_devices(text).problem, "") << text;
  }
  EXPECT_THAT(parse_visible_devices("2,2").problem, HasSubstr("2 is there twice"));
}

}  // namespace
}  // namespace unisono
