#include "unisono/engine/backends.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

namespace unisono::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Backends, OneIsBuiltInAndHasSeveralNames) {
  for (const std::string name : {"unisono", "native", "tcp"}) {
    EXPECT_EQ(find_backend(name).name, "unisono") << name;
  }
  EXPECT_TRUE(find_backend("unisono").has(DeviceType::kCpu));
  EXPECT_FALSE(find_backend("unisono").has(DeviceType::kCuda));
}

TEST(Backends, KnownOnesThatAreNotBuiltInSayWhatToDo) {
  for (const std::string name : {"gloo", "mpi", "nccl"}) {
    EXPECT_THAT([&] { (void)find_backend(name); },
                ThrowsMessage<Error>(::testing::AllOf(
                    HasSubstr("backend " + name + " is not built in"), HasSubstr("unisono"))));
  }
  for (const Backend& backend : backends()) {
    EXPECT_EQ(backend.has(DeviceType::kCpu), backend.name == "unisono");
    EXPECT_FALSE(backend.has(DeviceType::kCuda));
  }
}

TEST(Backends, UnknownNamesAreAnsweredWithTheKnownOnes) {
  for (const std::string name : {"", " ", "Unisono", "native tcp", "uni", "ucc"}) {
    EXPECT_THAT([&] { (void)find_backend(name); },
                ThrowsMessage<Error>(HasSubstr("no backend \"" + name + "\"; there is unisono")));
  }
}

}  // namespace
}  // namespace unisono::engine
