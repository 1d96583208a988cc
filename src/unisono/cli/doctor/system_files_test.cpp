#include "unisono/cli/doctor/system_files.h"

#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temporary_folder.h"

namespace unisono::cli::doctor {
namespace {

using test::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(SystemFiles, WhatCannotBeReadIsNothing) {
  const TemporaryFolder root;
  EXPECT_EQ(read_text(root.path() + "/none"), std::nullopt);
  // As a file of /sys that opens and whose driver has no value.
  EXPECT_EQ(read_text(root.path()), std::nullopt);
  EXPECT_EQ(read_number(root.path()), std::nullopt);
  EXPECT_THAT(names_in(root.path() + "/none"), IsEmpty());
}

TEST(SystemFiles, NumbersAndNamedValuesAreFound) {
  const TemporaryFolder root;
  EXPECT_EQ(read_number(root.write("a", "42 7\n")), 42);
  EXPECT_EQ(read_number(root.write("b", "max\n")), std::nullopt);
  EXPECT_EQ(value_of("Name:\tx y \nCapEff:\t00ff\n", "CapEff:"), "00ff");
  EXPECT_EQ(value_of("Name:\tx y \n", "Name:"), "x y");
  EXPECT_EQ(value_of("", "Name:"), std::nullopt);
  EXPECT_THAT(names_in(root.path()), ElementsAre("a", "b"));
}

TEST(SystemFiles, BytesAreWrittenForPeople) {
  EXPECT_EQ(format_bytes(12), "12 bytes");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(std::uint64_t{8} << 40), "8 TiB");
}

}  // namespace
}  // namespace unisono::cli::doctor
