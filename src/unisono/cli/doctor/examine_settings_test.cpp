#include "unisono/cli/doctor/examine_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/config.h"
#include "unisono/cli/doctor/finding.h"

#include "support/ranks.h"

namespace unisono::cli::doctor {
namespace {

using test::fake_environment;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(ExamineSettings, WrongValuesAreAProblem) {
  const Findings findings =
      examine_settings(fake_environment({{"UNISONO_LOG", "loud"}}), {"UNISONO_LOG"});
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings[0].state, State::kProblem);
  EXPECT_THAT(findings[0].text, HasSubstr("UNISONO_LOG=\"loud\""));
}

TEST(ExamineSettings, WhatIsSetIsShownButNotTheSecret) {
  const Findings findings =
      examine_settings(fake_environment({{"UNISONO_LOG", "debug"}, {"UNISONO_SECRET", "hush"}}),
                       {"UNISONO_LOG", "UNISONO_SECRET"});
  EXPECT_THAT(findings,
              ElementsAre(Finding{
                  .state = State::kInfo, .topic = "settings", .text = "UNISONO_LOG=debug"}));
  EXPECT_THAT(examine_settings(fake_environment({}), {}), IsEmpty());
}

TEST(ExamineSettings, AMisspelledSettingIsNamedWithTheRightOne) {
  const Findings findings =
      examine_settings(fake_environment({}), {"UNISONO_TIMOUT_SECONDS", "UNISONO_PIZZA"});
  ASSERT_EQ(findings.size(), 2);
  EXPECT_EQ(findings[0].state, State::kWarning);
  EXPECT_THAT(findings[0].text, HasSubstr("UNISONO_TIMOUT_SECONDS is no setting"));
  EXPECT_THAT(findings[0].advice, HasSubstr("is UNISONO_TIMEOUT_SECONDS meant?"));
  EXPECT_THAT(findings[1].advice, Not(HasSubstr("meant")));
}

TEST(ExamineSettings, AWrongValueLeavesTheOtherSettingsReadable) {
  const Config config = readable_config(
      fake_environment({{"UNISONO_LOG", "loud"}, {"UNISONO_SECRET", "hush"}, {"HOME", "/house"}}));
  EXPECT_EQ(config.home, "/house");
  EXPECT_EQ(config.log_level, LogLevel::kInfo);
  EXPECT_EQ(config.secret, "hush");
}

}  // namespace
}  // namespace unisono::cli::doctor
