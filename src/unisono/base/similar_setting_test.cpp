#include "unisono/base/similar_setting.h"

#include <gtest/gtest.h>

#include "unisono/base/edit_distance.h"

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

}  // namespace
}  // namespace unisono
