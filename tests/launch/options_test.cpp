// Command lines written for torchrun, and error messages for wrong command lines.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch_run.h"
#include "support/temporary_folder.h"

namespace unisono::launch_test {
namespace {

using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Options = std::vector<std::string>;

TEST(LaunchOptions, TorchrunsForOneMachineAreTaken) {
  for (const Options& options : std::vector<Options>{
           {"--standalone", "--nproc_per_node=2"},
           {"--standalone", "--nnodes=1", "--nproc-per-node", "2"},
           {"--nnodes", "1", "--nproc_per_node", "2", "--node_rank", "0", "--master_port", "0"},
           {"--nnodes=1:1", "--nproc_per_node=2", "--rdzv_backend=c10d"},
           {"--nnodes=1", "--nproc_per_node=2", "--rdzv-endpoint=127.0.0.1:0", "--rdzv_id=x"},
           {"--nproc_per_node=3", "--nproc_per_node=2"},
           {"--nproc_per_node=2", "--max_restarts=0", "--shutdown_timeout=3"}}) {
    const RunResult result =
        run_to_end({.arguments = probe(options, {"environment", "WORLD_SIZE"})});
    EXPECT_EQ(result.exit_code, 0) << ::testing::PrintToString(options) << result.err;
    EXPECT_EQ(result.out, "WORLD_SIZE=2\nWORLD_SIZE=2\n") << ::testing::PrintToString(options);
    EXPECT_EQ(result.err, "") << ::testing::PrintToString(options);
  }
}

// A job of two ranks in every spelling that argparse or mpirun accept.
TEST(LaunchOptions, SpellingsOfOtherLaunchersAreTaken) {
  const TemporaryFolder folder;
  const std::string logs = "--log-d=" + folder.path() + "/logs";
  for (const Options& options : std::vector<Options>{{"-np", "2", logs},
                                                     {"-n=2", logs, "-t=3"},
                                                     {"--nproc", "2", logs, "--redirect=0"},
                                                     {"--nproc_per=2", "--standal", logs}}) {
    const RunResult result =
        run_to_end({.arguments = probe(options, {"environment", "WORLD_SIZE"})});
    EXPECT_EQ(result.exit_code, 0) << ::testing::PrintToString(options) << result.err;
    EXPECT_EQ(result.out, "WORLD_SIZE=2\nWORLD_SIZE=2\n") << ::testing::PrintToString(options);
    EXPECT_EQ(result.err, "") << ::testing::PrintToString(options);
  }
  const RunResult quiet =
      run_to_end({.arguments = probe({"-r=3", logs}, {"environment", "WORLD_SIZE"})});
  EXPECT_EQ(quiet.out, "") << "-r=3 sends both streams into files";
  const RunResult vague = run_to_end({.arguments = probe({"--rdzv=x"}, {"args"})});
  EXPECT_EQ(vague.exit_code, 2);
  EXPECT_THAT(vague.err, HasSubstr("--rdzv may be --rdzv-backend or --rdzv-endpoint"));
}

TEST(LaunchOptions, APrefixMayBeATemplateOfTorchrun) {
  const std::string text = "[${role_name}${local_rank}|${rank}]: ";
  const Options words{"environment", "WORLD_SIZE"};
  for (const RunSetup& setup :
       {RunSetup{.arguments = probe({"-n", "2", "--log_line_prefix_template", text}, words)},
        RunSetup{.arguments = probe({"-n", "2"}, words),
                 .environment = {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=" + text}}}) {
    Options lines = split_lines(run_to_end(setup).out);
    std::ranges::sort(lines);
    EXPECT_THAT(lines,
                ::testing::ElementsAre("[default0|0]: WORLD_SIZE=2", "[default1|1]: WORLD_SIZE=2"));
  }
}

TEST(LaunchOptions, ANameThatIsNearlyACommandsIsAnsweredWithIt) {
  for (const auto& [words, meant] : std::vector<std::pair<Options, std::string>>{
           {{"rnu", "-n", "2"}, "no command rnu; did you mean run?"},
           {{"plan", "slrum"}, "no command unisono plan slrum; did you mean slurm?"},
           {{"plan", "pipeline", "--chnuks", "8"}, "did you mean --chunks?"}}) {
    const RunResult result = run_to_end({.arguments = words});
    EXPECT_EQ(result.exit_code, 2) << meant;
    EXPECT_THAT(result.err, HasSubstr(meant));
  }
}

TEST(LaunchOptions, WhatSaysNothingHereIsNamedOnce) {
  const RunResult result = run_to_end(
      {.arguments = probe({"--monitor_interval=5", "--rdzv-conf", "timeout=3", "-n", "2"},
                          {"environment", "WORLD_SIZE"})});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err,
            "[unisono launcher] these options of torchrun have no effect here: "
            "--monitor-interval, --rdzv-conf\n");
  const RunResult signals =
      run_to_end({.arguments = probe({}, {"args"}),
                  .environment = {"TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT"}});
  EXPECT_EQ(count(signals.err, "have no effect here: --signals-to-handle\n"), 1) << signals.err;
}

TEST(LaunchOptions, NamesOfJobAndRoleReachTheRanks) {
  const RunResult result =
      run_to_end({.arguments = probe(
                      {"--rdzv_id", "night", "--role", "trainer", "--rdzv_endpoint", "127.0.0.1"},
                      {"environment",
                       "TORCHELASTIC_RUN_ID",
                       "ROLE_NAME",
                       "MASTER_ADDR",
                       "TORCH_NCCL_ASYNC_ERROR_HANDLING"}),
                  .environment = {"TORCH_NCCL_ASYNC_ERROR_HANDLING"}});
  EXPECT_EQ(result.out,
            "TORCHELASTIC_RUN_ID=night\nROLE_NAME=trainer\nMASTER_ADDR=127.0.0.1\n"
            "TORCH_NCCL_ASYNC_ERROR_HANDLING=1\n")
      << result.err;
}

TEST(LaunchOptions, AStandaloneJobNeedsNoEndpoint) {
  const RunResult result = run_to_end(
      {.arguments = probe({"--standalone", "--rdzv-endpoint=192.0.2.1:99999"}, {"args"})});
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST(LaunchOptions, WhatSaysNothingOfOneNodeIsRefused) {
  for (const Options& options :
       std::vector<Options>{{"--node_rank=1"}, {"--nnodes=2", "--node-rank=2"}, {"--nnodes=0"}}) {
    const RunResult result = run_to_end({.arguments = probe(options, {"args"})});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr("run: --n"));
    EXPECT_EQ(split_lines(result.err).size(), 1U) << result.err;
  }
}

TEST(LaunchOptions, TorchrunsVariablesAreDefaults) {
  const std::vector<std::string> variables{"PET_NPROC_PER_NODE=2",
                                           "PET_NNODES=1",
                                           "PET_NODE_RANK=0",
                                           "PET_RDZV_ID=night",
                                           "PET_MAX_RESTARTS=3",
                                           "PET_ROLE=trainer"};
  const Options words{
      "environment", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_MAX_RESTARTS"};
  const RunResult result = run_to_end({.arguments = probe({}, words), .environment = variables});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(count(result.out,
                  "WORLD_SIZE=2\nTORCHELASTIC_RUN_ID=night\n"
                  "TORCHELASTIC_MAX_RESTARTS=3\n"),
            2)
      << result.out;
  const RunResult other =
      run_to_end({.arguments = probe({"-n", "1"}, words), .environment = variables});
  EXPECT_EQ(count(other.out, "WORLD_SIZE=1\n"), 1) << "the command line counts more";
  EXPECT_THAT(run_to_end({.arguments = probe({}, words), .environment = {"PET_NNODES=x"}}).err,
              HasSubstr("--nnodes x: write a number"));
}

TEST(LaunchOptions, WrongValuesAreExplained) {
  EXPECT_THAT(run_to_end({.arguments = probe({"--rdzv_backend=etcd-v2"}, {"args"})}).err,
              HasSubstr("--rdzv-backend etcd-v2: there are static and c10d"));
  EXPECT_THAT(run_to_end({.arguments = probe({"--rdzv_endpoint=a:b"}, {"args"})}).err,
              HasSubstr("--rdzv-endpoint a:b: b is not a port"));
}

TEST(LaunchOptions, ATypoIsAnsweredWithTheOptionThatWasMeant) {
  const RunResult result = run_to_end({.arguments = probe({"--master_adderss=x"}, {"args"})});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("there is no option --master_adderss=x"),
                    HasSubstr("did you mean --master_addr?")));
  EXPECT_EQ(run_to_end({.arguments = probe({"--master_address=127.0.0.1"}, {"args"})}).exit_code,
            0);
  EXPECT_THAT(run_to_end({.arguments = probe({"--frobnicate"}, {"args"})}).err,
              Not(HasSubstr("did you mean")));
}

TEST(LaunchOptions, ADashThatIsNoHyphenIsNamed) {
  const RunResult result = run_to_end({.arguments = probe({"–nnodes=1"}, {"args"})});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("–nnodes=1"), HasSubstr("not a hyphen")));
}

// The argument that torch.distributed.launch passes.
TEST(LaunchOptions, LaunchPassesTheLocalRankBeforeTheArguments) {
  const TemporaryFolder folder;
  const std::string script = folder.write("train.py", "import sys; print(sys.argv[1:])\n", 0644);
  const auto lines = [](const Options& options, const Options& words) {
    Options arguments = options;
    arguments.insert(arguments.begin(), {"launch", "--nproc_per_node=2"});
    arguments.insert(arguments.end(), words.begin(), words.end());
    const RunResult result = run_to_end({.arguments = arguments});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    Options said = split_lines(result.out);
    std::ranges::sort(said);
    return said;
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(lines({}, {script, "--lr", "1"}),
              ElementsAre("['--local_rank=0', '--lr', '1']", "['--local_rank=1', '--lr', '1']"));
  EXPECT_THAT(lines({"--use_env"}, {script, "--lr"}), ElementsAre("['--lr']", "['--lr']"));
  const std::string newer =
      folder.write("newer.py", "import sys; print(sys.argv[1:])  # --local-rank\n", 0644);
  EXPECT_THAT(lines({}, {newer}), ElementsAre("['--local-rank=0']", "['--local-rank=1']"));
  const std::string program = folder.write("train", "#!/bin/sh\necho \"$@\"\n", 0755);
  EXPECT_THAT(lines({}, {program, "a b"}), ElementsAre("--local_rank=0 a b", "--local_rank=1 a b"));
}

TEST(LaunchOptions, APythonFileMayHaveAnyName) {
  const TemporaryFolder folder;
  (void)folder.write("python3", "#!/bin/sh\necho python \"$@\"\n", 0755);
  const std::string script = folder.write("train", "", 0644);
  const std::string path = "PATH=" + folder.path() + ":/usr/bin:/bin";
  EXPECT_EQ(
      run_to_end({.arguments = {"run", "--run_path", script, "-m"}, .environment = {path}}).out,
      "python -u " + script + " -m\n");
  EXPECT_EQ(run_to_end({.arguments = {"run", "--run-path", "-m", script}}).exit_code, 2);
}

}  // namespace
}  // namespace unisono::launch_test
