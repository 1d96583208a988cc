#include "unisono/base/crash/memory_map.h"

#include <dlfcn.h>

#include <cstdint>
#include <filesystem>

#include <gtest/gtest.h>

namespace unisono::crash {
namespace {

TEST(MemoryMap, KnowsTheFileOfCode) {
  const auto address = reinterpret_cast<std::uintptr_t>(&find_mapping);
  Mapping mapping;
  ASSERT_TRUE(find_mapping(address, mapping));
  EXPECT_TRUE(mapping.is_executable);
  EXPECT_EQ(mapping.file(), std::filesystem::canonical("/proc/self/exe").string());
  Dl_info info{};
  ASSERT_NE(::dladdr(reinterpret_cast<const void*>(&find_mapping), &info), 0);
  EXPECT_EQ(mapping.file_begin, reinterpret_cast<std::uintptr_t>(info.dli_fbase));
}

TEST(MemoryMap, KnowsWhatIsNoCode) {
  const int variable = 0;
  Mapping mapping;
  ASSERT_TRUE(find_mapping(reinterpret_cast<std::uintptr_t>(&variable), mapping));
  EXPECT_FALSE(mapping.is_executable);
  EXPECT_EQ(mapping.file(), "");
  EXPECT_FALSE(find_mapping(0, mapping));
}

}  // namespace
}  // namespace unisono::crash
