#include "unisono/launch/output/stream_selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

namespace unisono::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr Source kOut0{0, OutputStream::kOut};
constexpr Source kErr0{0, OutputStream::kErr};
constexpr Source kOut1{1, OutputStream::kOut};
constexpr Source kErr1{1, OutputStream::kErr};

TEST(ParseStreams, OneNumberIsForAllRanks) {
  EXPECT_THAT(parse_streams("0", 2), IsEmpty());
  EXPECT_THAT(parse_streams("1", 2), ElementsAre(kOut0, kOut1));
  EXPECT_THAT(parse_streams("2", 2), ElementsAre(kErr0, kErr1));
  EXPECT_THAT(parse_streams("3", 2), ElementsAre(kOut0, kErr0, kOut1, kErr1));
}

TEST(ParseStreams, RanksMayBeNamed) {
  EXPECT_THAT(parse_streams("1:3", 2), ElementsAre(kOut1, kErr1));
  EXPECT_THAT(parse_streams("0:1,1:2", 2), ElementsAre(kOut0, kErr1));
}

TEST(ParseStreams, AnythingElseIsRefused) {
  for (const char* text : {"", "4", "-1", "x", "0:", ":1", "2:1", "0:1,", "0:1:2", "0:4", "0 :1"}) {
    EXPECT_THROW((void)parse_streams(text, 2), Error) << text;
  }
}

TEST(ParseLocalRanks, AreSeparatedByCommas) {
  EXPECT_EQ(parse_local_ranks("", 2), std::nullopt);
  EXPECT_EQ(parse_local_ranks("1,0", 2), (std::set<int>{0, 1}));
  for (const char* text : {"2", "a", ",", "0,", "-1"}) {
    EXPECT_THROW((void)parse_local_ranks(text, 2), Error) << text;
  }
}

TEST(OutputTargets, WithoutAChoiceAllGoesEverywhere) {
  EXPECT_FALSE(goes_to_file({}, kOut0));
  EXPECT_TRUE(is_shown({}, kOut0));
  EXPECT_TRUE(goes_to_file({.has_files = true}, kErr1));
  EXPECT_TRUE(is_shown({.has_files = true}, kErr1));
}

TEST(OutputTargets, WhatIsRedirectedIsNotShown) {
  const OutputTargets targets{.has_files = true, .redirects = {kOut0}};
  EXPECT_TRUE(goes_to_file(targets, kOut0));
  EXPECT_FALSE(is_shown(targets, kOut0));
  EXPECT_FALSE(goes_to_file(targets, kErr0));
  EXPECT_TRUE(is_shown(targets, kErr0));
}

TEST(OutputTargets, ATeeIsShownTooEvenIfRedirected) {
  const OutputTargets targets{.has_files = true, .redirects = {kOut0}, .tee = {kOut0}};
  EXPECT_TRUE(goes_to_file(targets, kOut0));
  EXPECT_TRUE(is_shown(targets, kOut0));
}

TEST(OutputTargets, OnlySomeRanksMayBeShown) {
  const OutputTargets targets{.has_files = true, .tee = {kOut0, kOut1}, .shown = std::set<int>{1}};
  EXPECT_FALSE(is_shown(targets, kOut0));
  EXPECT_TRUE(is_shown(targets, kOut1));
  EXPECT_TRUE(goes_to_file(targets, kOut0));
}

}  // namespace
}  // namespace unisono::launch
