#include "unisono/cli/bench_parse.h"

#include <functional>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

namespace unisono::cli::bench {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string refusal(const std::function<void()>& parse) {
  try {
    parse();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "accepted";
}

TEST(BenchParse, SizesAreBytesWithUnitsOfPowersOf1024) {
  EXPECT_THAT(parse_sizes("8,1K,3M,2G,0,1000"),
              ElementsAre(8, 1024, 3 << 20, std::int64_t{2} << 30, 0, 1000));
}

TEST(BenchParse, ARangeIsItsPowers) {
  EXPECT_THAT(parse_sizes("8:64"), ElementsAre(8, 16, 32, 64));
  EXPECT_THAT(parse_sizes("1K:64K:x8"), ElementsAre(1024, 8192, 65536));
  EXPECT_THAT(parse_sizes("8:100:x3,1M"), ElementsAre(8, 24, 72, 1 << 20));
  EXPECT_THAT(parse_sizes("512G:1024G:x1000"), ElementsAre(std::int64_t{1} << 39));
}

std::string refusal_of_size(const std::string& item) {
  return refusal([&] { (void)parse_sizes("8," + item); });
}

TEST(BenchParse, WhatIsNoSizeIsNamed) {
  for (const std::string item :
       {"", "x", "-1", "1.5K", "1KB", "K", "1025G", "99999999999999999999"}) {
    EXPECT_THAT(
        refusal_of_size(item),
        HasSubstr("bench: \"" + item + "\" in --sizes is not a number of bytes; write 8,1K"));
  }
}

TEST(BenchParse, ARangeThatIsNoneSaysWhy) {
  for (const auto& [item, problem] : std::vector<std::pair<std::string, std::string>>{
           {"8:", "is not a range"},
           {"8:64:2", "is not a range"},
           {"8:64:x", "is not a range"},
           {"8:64:x2:x2", "is not a range"},
           {"0:8", "begins at 0"},
           {"64:8", "ends below its beginning"},
           {"8:4:x2", "ends below its beginning"},
           {"8:64:x1", "factor 1, which must be at least 2"},
           {"8:64:x0", "factor 0, which must be at least 2"}}) {
    EXPECT_THAT(refusal_of_size(item),
                AllOf(HasSubstr("bench: \"" + item + "\" in --sizes "), HasSubstr(problem)));
  }
}

TEST(BenchParse, NamesAreThoseOfMessages) {
  EXPECT_EQ(parse_dtype("f32"), DType::kFloat32);
  EXPECT_EQ(parse_dtype("bool"), DType::kBool);
  EXPECT_EQ(parse_memory("symmetric"), Memory::kSymmetric);
  for (const Algorithm algorithm : kAlgorithms) {
    EXPECT_EQ(parse_algorithm(to_string(algorithm)), algorithm);
  }
}

TEST(BenchParse, AnUnknownNameIsAnsweredWithTheKnownOnes) {
  EXPECT_THAT(refusal([] { (void)parse_dtype("float"); }),
              HasSubstr("no dtype \"float\"; there are i8, u8,"));
  EXPECT_THAT(refusal([] { (void)parse_memory(""); }), HasSubstr("private, symmetric"));
  EXPECT_THAT(refusal([] { (void)parse_algorithm("rings"); }),
              HasSubstr("no algorithm \"rings\"; there are auto, one_shot, two_shot, tree,"));
}

}  // namespace
}  // namespace unisono::cli::bench
