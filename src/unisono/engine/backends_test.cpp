#include "unisono/engine/backends.h"

#include <stdlib.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

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
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  for (const std::string name : {"gloo", "mpi", "nccl"}) {
    EXPECT_THAT([&] { (void)find_backend(name); },
                ThrowsMessage<Error>(::testing::AllOf(HasSubstr("backend " + name + " is not "),
                                                      HasSubstr("unisono"))));
  }
  for (const Backend& backend : backends()) {
    EXPECT_EQ(backend.has(DeviceType::kCpu), backend.is_there);
    EXPECT_FALSE(backend.has(DeviceType::kCuda));
  }
}

TEST(Backends, UnknownNamesAreAnsweredWithTheKnownOnes) {
  for (const std::string name : {"", " ", "Unisono", "native tcp", "uni", "ucc"}) {
    EXPECT_THAT([&] { (void)find_backend(name); },
                ThrowsMessage<Error>(HasSubstr("no backend \"" + name + "\"; there is unisono")));
  }
}

TEST(Backends, WhatThisMachineCanNotUseSaysWhy) {
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  const std::vector<Backend> all = backends();
  const auto nccl = std::find_if(
      all.begin(), all.end(), [](const Backend& backend) { return backend.name == "nccl"; });
  ASSERT_NE(nccl, all.end());
  EXPECT_FALSE(nccl->is_there);
  if (nccl->find_obstacle == nullptr) {
    GTEST_SKIP() << "the build has found no nccl.h (UNISONO_NCCL_DIR)";
  }
  EXPECT_THAT(nccl->help, HasSubstr("it needs a GPU, and CUDA_VISIBLE_DEVICES=\"\" hides all"));
  EXPECT_STREQ(nccl->absence(), "not usable here");
}

TEST(Backends, OneOfTheProgramsOwnIsListedAndFound) {
  const MakeEngine keep = [](const rendezvous::Roster&, std::unique_ptr<Engine> native) {
    return native;
  };
  register_backend("own", "passes everything on", keep);
  EXPECT_EQ(find_backend("own").help, "passes everything on");
  EXPECT_TRUE(find_backend("own").has(DeviceType::kCpu));
  EXPECT_EQ(backends().back().name, "own");
  EXPECT_THAT([] { (void)find_backend("other"); },
              ThrowsMessage<Error>(HasSubstr("there is unisono (also called native, tcp), own")));
  for (const std::string taken : {"own", "unisono", "tcp", "nccl"}) {
    EXPECT_THAT(
        [&] { register_backend(taken, "", keep); },
        ThrowsMessage<Error>("register_backend: there is a backend \"" + taken + "\" already"));
  }
}

TEST(Backends, OneOfTheProgramsOwnNeedsANameAndAFunction) {
  EXPECT_THAT([] { register_backend("idle", "", nullptr); },
              ThrowsMessage<Error>(HasSubstr("needs a function that makes its engine")));
  EXPECT_THAT([] { register_backend("", "", [](const auto&, auto native) { return native; }); },
              ThrowsMessage<Error>(HasSubstr("needs a name")));
}

}  // namespace
}  // namespace unisono::engine
