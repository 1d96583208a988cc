#include "unisono/base/backend_alias.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace unisono {
namespace {

using ::testing::HasSubstr;

TEST(BackendAlias, NamesThatMeanUnisonoAreFine) {
  for (const char* text :
       {"gloo=unisono", "gloo=unisono,nccl=unisono,tcp=unisono", "my_2=unisono"}) {
    EXPECT_EQ(find_alias_problem(text), std::nullopt) << text;
  }
}

TEST(BackendAlias, EachMistakeIsNamed) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "\"\" lacks what it means; write NAME=unisono"},
      {"gloo", "\"gloo\" lacks what it means"},
      {"gloo=unisono,", "\"\" lacks what it means"},
      {"gloo=unisono,,tcp=unisono", "\"\" lacks what it means"},
      {"=unisono", "\"=unisono\": before the = goes a backend's name"},
      {"Gloo=unisono", "of a-z, 0-9 and _"},
      {"gloo=unisono, tcp=unisono", "\" tcp=unisono\": before the ="},
      {"cpu:gloo=unisono", "before the ="},
      {"gloo=nccl", "\"gloo=nccl\": a name can only mean unisono; write gloo=unisono"},
      {"gloo=", "can only mean unisono"},
      {"gloo=unisono=unisono", "can only mean unisono"},
      {"unisono=unisono", "unisono means Unisono already"},
      {"gloo=unisono,tcp=unisono,gloo=unisono", "\"gloo=unisono\" is there twice"},
  };
  for (const auto& [text, problem] : cases) {
    EXPECT_THAT(find_alias_problem(text).value_or("no problem"), HasSubstr(problem)) << text;
  }
}

}  // namespace
}  // namespace unisono
