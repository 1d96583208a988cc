// The training program on twenty drawn digits and with invalid inputs.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mnist_run.h"
#include "support/temporary_folder.h"

namespace unisono::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

const char* const kDigits = UNISONO_SYNTHETIC_DIGITS;

// Returns the losses of a rank in the order of its lines "Rank  0 , epoch  0 :  2.3".
std::vector<double> losses_of(const std::string& text, int rank) {
  std::vector<double> losses;
  const std::string start = "Rank  " + std::to_string(rank) + " , epoch  ";
  for (const std::string& line : lines_after(text, start)) {
    const std::string epoch = std::to_string(losses.size()) + " :  ";
    EXPECT_TRUE(line.starts_with(epoch)) << start << line;
    losses.push_back(std::stod(line.substr(line.find(':') + 1)));
  }
  return losses;
}

TEST(Mnist, TenEpochsEndInOneModelAndEqualParameters) {
  const TemporaryFolder folder;
  const std::string model = folder.path() + "/mnist.pt";
  const std::vector<std::string> arguments{"--data",
                                           kDigits,
                                           "--epochs",
                                           "10",
                                           "--batch-size",
                                           "5",
                                           "--lr",
                                           "0.2",
                                           "--save",
                                           model,
                                           "--verbose"};
  const ProcessResult first = run_mnist(arguments);
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(first.err, "");
  EXPECT_THAT(folder.names(), ElementsAre("mnist.pt"));
  EXPECT_THAT(lines_after(first.out, "saved the model to "), ElementsAre(model));

  for (int rank = 0; rank < 2; ++rank) {
    const std::vector<double> losses = losses_of(first.out, rank);
    ASSERT_EQ(losses.size(), 10U) << first.out;
    // With dropout and only twenty images the loss need not fall in each epoch. The slow test
    // checks each epoch.
    EXPECT_LT(losses.back(), 0.9 * losses.front()) << first.out;
  }
  const std::vector<std::string> hash = lines_after(first.out, "Rank 0 parameter hash ");
  ASSERT_EQ(hash.size(), 1U) << first.out;
  EXPECT_EQ(lines_after(first.out, "Rank 1 parameter hash "), hash);

  // A second run replaces the file and computes the same bits.
  const auto before = std::filesystem::last_write_time(model);
  const std::uintmax_t size = std::filesystem::file_size(model);
  const ProcessResult second = run_mnist(arguments);
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(folder.names(), ElementsAre("mnist.pt"));
  EXPECT_GT(std::filesystem::last_write_time(model), before);
  EXPECT_EQ(std::filesystem::file_size(model), size);
  EXPECT_EQ(lines_after(second.out, "Rank 0 parameter hash "), hash);
}

TEST(Mnist, EachStepIsRecorded) {
  const TemporaryFolder folder;
  const std::string json_file = folder.path() + "/steps.json";
  const ProcessResult result = run_mnist({"--data",
                                          kDigits,
                                          "--epochs",
                                          "2",
                                          "--batch-size",
                                          "5",
                                          "--save",
                                          "",
                                          "--json-file",
                                          json_file,
                                          "--tensorboard",
                                          folder.path() + "/runs"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(folder.names(), ElementsAre("runs", "steps.json"));
  const std::filesystem::directory_iterator runs(folder.path() + "/runs");
  EXPECT_EQ(std::distance(begin(runs), end(runs)), 1);
  // Two steps per epoch, and the accuracy of the epoch.
  EXPECT_THAT(lines_after(read_file(json_file), "{\"time\":"), SizeIs(6));
  EXPECT_THAT(lines_after(result.out, "4 of 4 steps in "), SizeIs(1)) << result.out;
  EXPECT_THAT(lines_after(result.out, "step "), ElementsAre(HasSubstr(" ms: forward ")));
}

// Expects that stderr contains only this message, from one rank or several ranks, and no crash
// report.
void expect_one_message(const ProcessResult& result, const std::string& text) {
  EXPECT_EQ(result.exit_code, 1);
  std::vector<std::string> messages = lines_after(result.err, "mnist: ");
  messages.erase(std::unique(messages.begin(), messages.end()), messages.end());
  ASSERT_EQ(messages.size(), 1U) << result.err;
  EXPECT_THAT(messages[0], HasSubstr(text));
  for (const char* trace :
       {"terminate called", "Exception raised from", "frame #", "core dumped"}) {
    EXPECT_THAT(result.err, Not(HasSubstr(trace)));
  }
}

TEST(Mnist, AMissingDataFolderIsNamed) {
  const TemporaryFolder folder;
  const std::string data = folder.path() + "/nowhere";
  expect_one_message(run_mnist({"--data", data, "--save", ""}), data);
}

TEST(Mnist, ATruncatedFileIsNamed) {
  const TemporaryFolder folder;
  std::filesystem::copy(kDigits, folder.path());
  const std::string images = folder.path() + "/train-images-idx3-ubyte.gz";
  std::filesystem::resize_file(images, std::filesystem::file_size(images) / 2);
  expect_one_message(run_mnist({"--data", folder.path(), "--save", ""}), images);
}

TEST(Mnist, ASaveFolderThatIsMissingIsNamedBeforeTraining) {
  const TemporaryFolder folder;
  const std::string model = folder.path() + "/nowhere/mnist.pt";
  const ProcessResult result = run_mnist({"--data", kDigits, "--save", model});
  expect_one_message(result, folder.path() + "/nowhere");
  EXPECT_THAT(lines_after(result.out, "epoch "), IsEmpty());
}

// Root may write to every folder except the kernel's folders.
TEST(Mnist, ASaveFolderThatTakesNoFilesIsNamedBeforeTraining) {
  const ProcessResult result = run_mnist({"--data", kDigits, "--save", "/proc/mnist.pt"});
  expect_one_message(result, "can't create a file in /proc");
  EXPECT_THAT(lines_after(result.out, "epoch "), IsEmpty());
}

TEST(Mnist, AFileForItsProgressThatCanNotBeWrittenIsNamed) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/nowhere/steps.json";
  expect_one_message(run_mnist({"--data", kDigits, "--save", "", "--json-file", file}), file);
}

TEST(Mnist, AWrongOptionIsAUsageError) {
  const ProcessResult result = run_mnist({"--epochs", "none"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--epochs"));
}

TEST(Mnist, ASavePathThatIsAFolderIsNamed) {
  const TemporaryFolder folder;
  const ProcessResult result = run_mnist({"--data", kDigits, "--save", folder.path()});
  expect_one_message(result, folder.path());
  EXPECT_THAT(lines_after(result.out, "epoch "), IsEmpty());
  EXPECT_THAT(folder.names(), IsEmpty());
}

}  // namespace
}  // namespace unisono::test
