#include "unisono/cli/parse.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

#include "support/throws_error.h"

namespace unisono::cli {
namespace {

std::string meant_by(const std::string& typed) {
  static const std::vector<std::string> names{
      "nproc-per-node", "nnodes", "master-addr", "master-port", "max-restarts", "tee", "log-dir"};
  return suggestion(typed, names);
}

TEST(Suggestion, FindsTheNearestName) {
  EXPECT_EQ(meant_by("--nproc-per-nod"), "; did you mean --nproc-per-node?");
  EXPECT_EQ(meant_by("--maxrestarts=3"), "; did you mean --max-restarts?");
  EXPECT_EQ(meant_by("--master-prot"), "; did you mean --master-port?");
  EXPECT_EQ(meant_by("--nodes=2"), "; did you mean --nnodes?");
  EXPECT_EQ(meant_by("-nnodes"), "; did you mean --nnodes?");
}

TEST(Suggestion, MayBeOfCommands) {
  const std::vector<std::string> commands{"run", "bench", "doctor", "plan"};
  EXPECT_EQ(suggestion("rnu", commands, ""), "; did you mean run?");
  EXPECT_EQ(suggestion("dcotor", commands, ""), "; did you mean doctor?");
  EXPECT_EQ(suggestion("benchmark", commands, ""), "; did you mean bench?");
  EXPECT_EQ(suggestion("train", commands, ""), "");
}

TEST(Suggestion, IsWrittenAsTheUserWrites) {
  EXPECT_EQ(meant_by("--master_address"), "; did you mean --master_addr?");
  EXPECT_EQ(meant_by("--nproc_pernode"), "; did you mean --nproc_per_node?");
}

TEST(Suggestion, APartOfANameIsEnough) {
  EXPECT_EQ(meant_by("--nproc"), "; did you mean --nproc-per-node?");
  EXPECT_EQ(meant_by("--log-directory"), "; did you mean --log-dir?");
}

TEST(Suggestion, IsNoneWhereNothingIsNear) {
  for (const char* typed : {"--frobnicate", "-x", "--", "-", "", "--=", "--no-such-option"}) {
    EXPECT_EQ(meant_by(typed), "") << typed;
  }
}

TEST(TypographicDash, IsAnyThatIsNoHyphen) {
  EXPECT_TRUE(starts_with_typographic_dash("–nnodes"));
  EXPECT_TRUE(starts_with_typographic_dash("—nnodes"));
  EXPECT_TRUE(starts_with_typographic_dash("\u2212n"));
  EXPECT_FALSE(starts_with_typographic_dash("-n"));
  EXPECT_FALSE(starts_with_typographic_dash("ä"));
  EXPECT_FALSE(starts_with_typographic_dash(""));
}

}  // namespace

namespace {

using test::throws_error;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using Words = std::vector<std::string>;

class Spellings : public ::testing::Test {
 protected:
  Spellings() {
    app_.add_option("-n,--nproc-per-node,--nproc_per_node", text_);
    app_.add_option("-r,--redirects", text_);
    app_.add_option("--rdzv-endpoint,--rdzv_endpoint", text_);
    app_.add_option("--rdzv-conf,--rdzv_conf", text_);
    app_.add_option("--tee", text_);
    app_.add_flag("-m,--module", is_set_);
    app_.add_flag("--tee-all", is_set_);
  }

  [[nodiscard]] Words respelled(Words words) const {
    std::vector<char*> pointers;
    for (std::string& word : words) {
      pointers.push_back(word.data());
    }
    return respell(app_, pointers);
  }

  CLI::App app_{"", "test"};
  std::string text_;
  bool is_set_ = false;
};

TEST_F(Spellings, ABeginningOfOneOptionOnlyStandsForIt) {
  EXPECT_THAT(respelled({"--redirect=3", "--nproc", "2", "--mod", "--rdzv_e=x", "--rdzv-c", "y"}),
              ElementsAre("--redirects=3",
                          "--nproc-per-node",
                          "2",
                          "--module",
                          "--rdzv-endpoint=x",
                          "--rdzv-conf",
                          "y"));
  EXPECT_THAT(
      [&] { (void)respelled({"--rdzv=x"}); },
      throws_error(ErrorCode::kInvalidArgument, "--rdzv may be --rdzv-endpoint or --rdzv-conf"));
}

TEST_F(Spellings, AWholeNameIsNoBeginning) {
  EXPECT_THAT(respelled({"--tee", "--tee-al", "--tee-all"}),
              ElementsAre("--tee", "--tee-al", "--tee-all"))
      << "the second one is the value of the first";
}

TEST_F(Spellings, AShortOptionMayHaveAnEqualsSign) {
  EXPECT_THAT(respelled({"-r=3", "-mr=0:3", "-r3", "-n=2"}),
              ElementsAre("-r3", "-mr0:3", "-r3", "-n2"));
}

TEST_F(Spellings, MpirunsNumberOfRanksIsTaken) {
  EXPECT_THAT(respelled({"-np", "4", "-np=4"}), ElementsAre("-n", "4", "-n4"));
}

TEST_F(Spellings, WhatIsNoOptionStays) {
  for (const Words& words : {Words{"--", "--redirect=3", "-np"},
                             Words{"--unknown=3", "-q=3", "-", "word", "--tee", "--nproc"},
                             Words{"-r", "--nproc", "-n", "-np"}}) {
    EXPECT_THAT(respelled(words), ElementsAreArray(words));
  }
  app_.prefix_command();
  const Words program{"-m", "program", "--redirect=3", "-np", "4"};
  EXPECT_THAT(respelled(program), ElementsAreArray(program));
}

TEST_F(Spellings, OptionsOfACommandAreItsOwn) {
  CLI::App* const command = app_.add_subcommand("slurm", "");
  command->add_option("--parts", text_);
  EXPECT_THAT(respelled({"--redir", "1", "slurm", "--part", "2", "--redir"}),
              ElementsAre("--redirects", "1", "slurm", "--parts", "2", "--redir"));
  EXPECT_THAT([&] { (void)respelled({"slrum"}); },
              throws_error(ErrorCode::kInvalidArgument,
                           "no command test slrum; did you mean slurm?; there are slurm"));
}

}  // namespace
}  // namespace unisono::cli
