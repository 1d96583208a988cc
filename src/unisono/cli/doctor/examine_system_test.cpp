#include "unisono/cli/doctor/examine_system.h"

#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/cli/doctor/finding.h"

#include "support/ranks.h"
#include "support/temporary_folder.h"

namespace unisono::cli::doctor {
namespace {

using test::fake_environment;
using test::TemporaryFolder;
using ::testing::HasSubstr;

TEST(ExamineKernel, AnOldOneIsAProblem) {
  const TemporaryFolder root;
  (void)root.write("etc/os-release", "ID=debian\nPRETTY_NAME=\"Debian 12\"\n");
  (void)root.write("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
  EXPECT_EQ(
      examine_kernel(fake_environment({}), root.path()).at(0),
      (Finding{
          .state = State::kInfo, .topic = "kernel", .text = "Linux 6.1.0-18-amd64; Debian 12"}));
  (void)root.write("proc/sys/kernel/osrelease", "5.2.21\n");
  EXPECT_EQ(examine_kernel(fake_environment({}), root.path()).at(0).state, State::kProblem);
  (void)root.write("proc/sys/kernel/osrelease", "5.15.0\n");
  EXPECT_EQ(examine_kernel(fake_environment({}), root.path()).at(0).state, State::kInfo);
}

TEST(ExamineKernel, ContainersAreRecognized) {
  const TemporaryFolder root;
  EXPECT_EQ(examine_kernel(fake_environment({}), root.path()).size(), 1);
  EXPECT_THAT(
      examine_kernel(fake_environment({{"KUBERNETES_SERVICE_HOST", "10.96.0.1"}}), root.path())
          .at(1)
          .text,
      HasSubstr("Kubernetes"));
  EXPECT_THAT(
      examine_kernel(fake_environment({{"APPTAINER_CONTAINER", "/images/a.sif"}}), root.path())
          .at(1)
          .text,
      HasSubstr("/images/a.sif"));
  (void)root.write("proc/1/cgroup", "0::/system.slice/docker-1.scope\n");
  EXPECT_THAT(examine_kernel(fake_environment({}), root.path()).at(1).text,
              HasSubstr("/proc/1/cgroup"));
  (void)root.write("run/.containerenv", "");
  EXPECT_THAT(examine_kernel(fake_environment({}), root.path()).at(1).text, HasSubstr("Podman"));
}

TEST(ExamineSingleCopy, PtraceScopeKeepsRanksApart) {
  const TemporaryFolder root;
  EXPECT_EQ(examine_single_copy("", root.path()).state, State::kOk);
  (void)root.write("proc/sys/kernel/yama/ptrace_scope", "1\n");
  (void)root.write("proc/self/status", "Name:\tdoctor\nCapEff:\t0000000000000000\n");
  const Finding finding = examine_single_copy("", root.path());
  EXPECT_EQ(finding.state, State::kWarning);
  EXPECT_THAT(finding.text, HasSubstr("ptrace_scope=1"));
  (void)root.write("proc/self/status", "Name:\tdoctor\nCapEff:\t0000000000080000\n");
  EXPECT_EQ(examine_single_copy("", root.path()).state, State::kOk);
  (void)root.write("proc/sys/kernel/yama/ptrace_scope", "3\n");
  EXPECT_EQ(examine_single_copy("", root.path()).state, State::kWarning);
}

TEST(ExamineSingleCopy, AFilterOfSystemCallsIsNamed) {
  const TemporaryFolder root;
  const Finding finding =
      examine_single_copy("process_vm_readv: Operation not permitted", root.path());
  EXPECT_EQ(finding.state, State::kWarning);
  EXPECT_THAT(finding.text, HasSubstr("Operation not permitted"));
}

TEST(ExamineClock, OneThatWasNeverSetIsAWarning) {
  const std::chrono::system_clock::time_point epoch;
  EXPECT_EQ(examine_clock({.now = epoch}).state, State::kWarning);
  const Finding good = examine_clock({.now = epoch + std::chrono::hours(24 * 365 * 60)});
  EXPECT_EQ(good.state, State::kInfo);
  EXPECT_THAT(good.text, HasSubstr("2029-12-17 00:00:00 UTC"));
}

}  // namespace
}  // namespace unisono::cli::doctor
