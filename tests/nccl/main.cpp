#include <gtest/gtest.h>

#include "on_gpu.h"
#include "support/ranks.h"

int main(int argc, char** argv) {
  unisono::test::load_fakes(4);
  // Affects the tests from other folders.
  unisono::test::default_backend() = "nccl";
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
