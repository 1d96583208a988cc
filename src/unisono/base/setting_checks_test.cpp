#include "unisono/base/setting_checks.h"

#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/text.h"

namespace unisono {
namespace {

TEST(EditDistance, CountsLetters) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("log", "lgo"), 1U);
  EXPECT_EQ(edit_distance("ab", "ba"), 1U);
  EXPECT_EQ(edit_distance("abc", "bca"), 2U);
  EXPECT_EQ(edit_distance("dcotor", "doctor"), 1U);
}

TEST(SimilarSetting, IsTheOneMeant) {
  EXPECT_EQ(similar_setting("UNISONO_LGO"), "UNISONO_LOG");
  EXPECT_EQ(similar_setting("UNISONO_TIMOUT_SECONDS"), "UNISONO_TIMEOUT_SECONDS");
  EXPECT_EQ(similar_setting("UNISONO_LOG"), "");
  EXPECT_EQ(similar_setting("UNISONO_SOMETHING_ELSE"), "");
}

using ::testing::HasSubstr;

TEST(BackendAlias, NamesThatMeanUnisonoAreFine) {
  for (const char* text :
       {"gloo=unisono", "gloo=unisono,nccl=unisono,tcp=unisono", "my_2=unisono"}) {
    EXPECT_EQ(find_alias_problem(text), std::nullopt) << text;
  }
}

TEST(BackendAlias, EachMistakeIsNamed) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "\"\" has no value; write NAME=unisono"},
      {"gloo", "\"gloo\" has no value"},
      {"gloo=unisono,", "\"\" has no value"},
      {"gloo=unisono,,tcp=unisono", "\"\" has no value"},
      {"=unisono", "\"=unisono\": the name before the ="},
      {"Gloo=unisono", "of a-z, 0-9 and _"},
      {"gloo=unisono, tcp=unisono", "\" tcp=unisono\": the name before the ="},
      {"cpu:gloo=unisono", "before the ="},
      {"gloo=nccl", "\"gloo=nccl\": a name can only mean unisono; write gloo=unisono"},
      {"gloo=", "can only mean unisono"},
      {"gloo=unisono=unisono", "can only mean unisono"},
      {"unisono=unisono", "unisono means Unisono already"},
      {"gloo=unisono,tcp=unisono,gloo=unisono", "\"gloo=unisono\" occurs twice"},
  };
  for (const auto& [text, problem] : cases) {
    EXPECT_THAT(find_alias_problem(text).value_or("no problem"), HasSubstr(problem)) << text;
  }
}

using ::testing::ElementsAre;
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
  EXPECT_THAT(parse_visible_devices("2,2").problem, HasSubstr("2 occurs twice"));
}

}  // namespace
}  // namespace unisono
