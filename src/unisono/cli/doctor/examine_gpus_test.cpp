#include "unisono/cli/doctor/examine_gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/cli/doctor/finding.h"

#include "support/ranks.h"
#include "support/temporary_folder.h"

namespace unisono::cli::doctor {
namespace {

using test::fake_environment;
using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

void give_driver(const TemporaryFolder& root) {
  (void)root.write("proc/driver/nvidia/version",
                   "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12\n");
}

void give_gpu(const TemporaryFolder& root, const std::string& number) {
  (void)root.write("proc/driver/nvidia/gpus/0000:0" + number + ":00.0/information",
                   "Model: \t\t NVIDIA H100\nIRQ: 12\n");
  (void)root.write("dev/nvidia" + number, "");
}

TEST(ExamineGpus, NoneIsNoProblem) {
  const TemporaryFolder root;
  const Findings findings = examine_gpus(fake_environment({}), root.path());
  ASSERT_EQ(findings.size(), 1);
  EXPECT_EQ(findings[0].state, State::kInfo);
}

TEST(ExamineGpus, VisibleDevicesWithoutADriverAreExplained) {
  const TemporaryFolder root;
  const Findings findings =
      examine_gpus(fake_environment({{"CUDA_VISIBLE_DEVICES", "0,1"}}), root.path());
  ASSERT_EQ(findings.size(), 1);
  EXPECT_EQ(findings[0].state, State::kWarning);
  EXPECT_THAT(findings[0].text, HasSubstr("CUDA_VISIBLE_DEVICES=0,1, but there is no driver"));
  EXPECT_EQ(examine_gpus(fake_environment({{"CUDA_VISIBLE_DEVICES", ""}}), root.path()).at(0).state,
            State::kInfo);
}

TEST(ExamineGpus, ADriverWithoutDevicesIsAContainerWithoutGpus) {
  const TemporaryFolder root;
  give_driver(root);
  const Findings findings = examine_gpus(fake_environment({}), root.path());
  ASSERT_EQ(findings.size(), 1);
  EXPECT_EQ(findings[0].state, State::kWarning);
  EXPECT_THAT(findings[0].text, HasSubstr("driver 535.183.01"));
}

TEST(ExamineGpus, DevicesAreCountedByModel) {
  const TemporaryFolder root;
  give_driver(root);
  give_gpu(root, "0");
  give_gpu(root, "1");
  (void)root.write("dev/nvidiactl", "");
  const Findings findings = examine_gpus(fake_environment({}), root.path());
  ASSERT_EQ(findings.size(), 1);
  EXPECT_EQ(findings[0].state, State::kInfo);
  EXPECT_THAT(findings[0].text, AllOf(HasSubstr("2 NVIDIA H100"), HasSubstr("2 devices in /dev")));
}

TEST(ExamineGpus, ANumberThatNoGpuHasIsAWarning) {
  const TemporaryFolder root;
  give_driver(root);
  give_gpu(root, "0");
  const auto visible = [&](const std::string& text) {
    return examine_gpus(fake_environment({{"CUDA_VISIBLE_DEVICES", text}}), root.path()).at(1);
  };
  EXPECT_EQ(visible("0").state, State::kInfo);
  EXPECT_EQ(visible("GPU-5c1e").state, State::kInfo);
  EXPECT_EQ(visible("0,1").state, State::kWarning);
  EXPECT_THAT(visible("0,1").text, HasSubstr("none has number 1"));
  EXPECT_THAT(visible("").text, HasSubstr("hides all GPUs"));
}

}  // namespace
}  // namespace unisono::cli::doctor
