#include "unisono/engine/backends.h"

#include <stdlib.h>

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

namespace unisono::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using transport::OperationKind;

TEST(Backends, OneIsBuiltInAndHasSeveralNames) {
  for (const std::string name : {"unisono", "native", "tcp"}) {
    EXPECT_EQ(look_up_backend(name).name, "unisono") << name;
  }
  for (const std::string_view operation : operation_names()) {
    EXPECT_TRUE(look_up_backend("unisono").has(operation, DeviceType::kCpu)) << operation;
    EXPECT_FALSE(look_up_backend("unisono").has(operation, DeviceType::kCuda)) << operation;
  }
  EXPECT_FALSE(look_up_backend("unisono").has("smoke_signals", DeviceType::kCpu));
}

TEST(Backends, KnownOnesThatAreNotThereSayWhatToDo) {
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  for (const Backend& backend : backends()) {
    EXPECT_EQ(backend.has("all_reduce", DeviceType::kCpu), backend.is_there) << backend.name;
    EXPECT_FALSE(backend.has("all_reduce", DeviceType::kCuda)) << backend.name;
    if (!backend.is_there) {
      EXPECT_THAT([&] { (void)prepared(backend, {}); },
                  ThrowsMessage<Error>(::testing::AllOf(
                      HasSubstr("backend " + backend.name + " can't be used here: " + backend.help),
                      HasSubstr("unisono"))));
    }
  }
}

TEST(Backends, ThatOfTheMpisIsThereOrSaysWhatToInstall) {
  const std::vector<Backend> all = backends();
  const auto mpi = std::find_if(
      all.begin(), all.end(), [](const Backend& backend) { return backend.name == "mpi"; });
  ASSERT_NE(mpi, all.end());
  if (!mpi->is_there) {
    EXPECT_THAT(mpi->help, HasSubstr("install libopenmpi-dev or libmpich-dev"));
    return;
  }
  EXPECT_FALSE(mpi->capabilities.has_canonical_bits);
  EXPECT_FALSE(mpi->capabilities.reduced_dtypes.has(DType::kBFloat16));
  EXPECT_TRUE(mpi->capabilities.dtypes.has(DType::kBFloat16));
  EXPECT_THAT([&] { (void)mpi->prepare({}); },
              ThrowsMessage<Error>(HasSubstr("start the program itself by its mpirun")));
}

TEST(Backends, UnknownNamesAreAnsweredWithTheKnownOnes) {
  for (const std::string name : {"", " ", "Unisono", "native tcp", "uni", "ucc"}) {
    EXPECT_THAT([&] { (void)look_up_backend(name); },
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
  EXPECT_EQ(nccl->help,
            "it needs a GPU, and CUDA_VISIBLE_DEVICES=\"\" hides all; on CPUs use backend unisono, "
            "which does there what gloo does");
}

TEST(Backends, GlooIsAnsweredInWordsOfCpp) {
  const Backend gloo = look_up_backend("gloo");
  EXPECT_FALSE(gloo.is_there);
  EXPECT_THAT(gloo.help,
              ::testing::StartsWith("Gloo is a library inside of PyTorch; use backend unisono, the "
                                    "default of InitOptions::backend, whose native engine"));
}

TEST(Backends, OneOfTheProgramsOwnIsListedAndFound) {
  const MakeEngine keep = [](const transport::RankTable&, std::shared_ptr<Engine> native) {
    return native;
  };
  register_backend("own", "passes everything on", keep, {.operations = {OperationKind::kReduce}});
  EXPECT_EQ(look_up_backend("own").help, "passes everything on");
  EXPECT_TRUE(look_up_backend("own").has("reduce", DeviceType::kCpu));
  EXPECT_FALSE(look_up_backend("own").has("broadcast", DeviceType::kCpu));
  EXPECT_TRUE(look_up_backend("own").has("send", DeviceType::kCpu));
  register_backend("mute", "does not support messages", keep, {.passes_messages = false});
  EXPECT_TRUE(look_up_backend("mute").has("broadcast", DeviceType::kCpu));
  for (const std::string_view message : {"send", "recv", "batch"}) {
    EXPECT_FALSE(look_up_backend("mute").has(message, DeviceType::kCpu)) << message;
  }
  EXPECT_EQ(backends().back().name, "mute");
  EXPECT_THAT([] { (void)look_up_backend("other"); },
              ThrowsMessage<Error>(
                  ::testing::AllOf(HasSubstr("there is unisono (also called native, tcp), "),
                                   ::testing::EndsWith(", own, mute"))));
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
