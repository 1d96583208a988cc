#include <gtest/gtest.h>

#include "on_gpu.h"
#include "support/ranks.h"

int main(int argc, char** argv) {
  unisono::test::load_fakes(4);
  // Of the tests that are not of this folder.
  unisono::test::default_backend() = "nccl";
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
