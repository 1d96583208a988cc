// Real MNIST: three epochs on two ranks.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "mnist_run.h"

namespace unisono::test {
namespace {

TEST(MnistSlow, ThreeEpochsReachTheStatedAccuracy) {
  const char* const named = std::getenv("UNISONO_TEST_MNIST_DIR");
  const std::string data = named != nullptr ? named : UNISONO_DEFAULT_MNIST_DIR;
  if (!std::filesystem::exists(data + "/train-images-idx3-ubyte.gz") &&
      !std::filesystem::exists(data + "/train-images-idx3-ubyte")) {
    GTEST_SKIP() << "MNIST is not in " << data << "; UNISONO_TEST_MNIST_DIR can name its folder";
  }
  const ProcessResult result = run_mnist(
      {"--data", data, "--epochs", "3", "--save", "", "--verbose"}, std::chrono::seconds(1150));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* const rank : {"0", "1"}) {
    double before = 1e9;
    for (const char* const epoch : {"0", "1", "2"}) {
      const std::vector<std::string> losses =
          lines_after(result.out, std::string("Rank  ") + rank + " , epoch  " + epoch + " :  ");
      ASSERT_EQ(losses.size(), 1U) << result.out;
      EXPECT_LT(std::stod(losses[0]), before) << result.out;
      before = std::stod(losses[0]);
    }
  }
  const std::vector<std::string> last = lines_after(result.out, "epoch 3/3 ");
  ASSERT_EQ(last.size(), 1U) << result.out;
  const std::string label = "test accuracy ";
  const std::size_t at = last[0].find(label);
  ASSERT_NE(at, std::string::npos) << last[0];
  EXPECT_GE(std::stod(last[0].substr(at + label.size())), 98.5) << result.out;
  const std::vector<std::string> hash = lines_after(result.out, "Rank 0 parameter hash ");
  ASSERT_EQ(hash.size(), 1U) << result.out;
  EXPECT_EQ(lines_after(result.out, "Rank 1 parameter hash "), hash);
}

}  // namespace
}  // namespace unisono::test
