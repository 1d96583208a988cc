#include "unisono/cli/suggestion.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

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
}  // namespace unisono::cli
