// Errors of the real library loader and the real GPU detection: with a GPU but without NCCL, and
// without a GPU.
#include <dlfcn.h>
#include <stdlib.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/engine/backends.h"

namespace unisono {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(NoNccl, IsRefusedWithWhatToInstall) {
  if (::dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL) != nullptr) {
    GTEST_SKIP() << "there is a libnccl.so.2";
  }
  ASSERT_NE(::dlopen(FAKE_CUDA, RTLD_NOW | RTLD_GLOBAL), nullptr);
  ::setenv("FAKE_CUDA_GPUS", "1", 1);
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_THAT([] { (void)create_process_group({.backend = "nccl"}); },
              ThrowsMessage<Error>(
                  AllOf(HasSubstr("init_process_group: backend nccl can't be used here: "),
                        HasSubstr("NVIDIA's NCCL can't be loaded: libnccl.so.2: cannot open"),
                        HasSubstr("pip install nvidia-nccl"),
                        HasSubstr("backend unisono"))));
}

TEST(NoGpu, IsRefusedWithWhatToUseInstead) {
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  EXPECT_THAT([] { (void)create_process_group({.backend = "nccl"}); },
              ThrowsMessage<Error>(
                  AllOf(HasSubstr("init_process_group: backend nccl can't be used here: it needs a "
                                  "GPU, and CUDA_VISIBLE_DEVICES=\"\" hides all"),
                        HasSubstr("on CPUs use backend unisono"))));
  for (const engine::Backend& backend : engine::backends()) {
    if (backend.name == "nccl") {
      EXPECT_FALSE(backend.has("all_reduce", DeviceType::kCuda));
    }
  }
}

}  // namespace
}  // namespace unisono
