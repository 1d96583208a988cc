#include "unisono/cli/slurm_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

#include "support/throws_error.h"

namespace unisono::cli {
namespace {

using test::throws_error;

TEST(SlurmPlan, ATaskHasTheGpusOfItsParts) {
  EXPECT_EQ(make_slurm_plan({.n_nodes = 3, .gpus_per_node = 4, .n_parts = 2}),
            (SlurmPlan{.n_nodes = 3, .tasks_per_node = 2, .n_tasks = 6, .gpus_per_node = 4}));
  EXPECT_EQ(make_slurm_plan({.n_nodes = 2, .gpus_per_node = 8, .n_parts = 2}),
            (SlurmPlan{.n_nodes = 2, .tasks_per_node = 4, .n_tasks = 8, .gpus_per_node = 8}));
  EXPECT_EQ(make_slurm_plan({.n_nodes = 2, .gpus_per_node = 4}).n_tasks, 8);
  EXPECT_EQ(make_slurm_plan({.n_nodes = 2, .tasks_per_node = 3}).n_tasks, 6);
  EXPECT_EQ(make_slurm_plan({.tasks_per_node = 4, .cpus_per_node = 10}).cpus_per_task, 2);
  EXPECT_EQ(make_slurm_plan({.tasks_per_node = 4, .cpus_per_node = 2}).cpus_per_task, 1);
}

TEST(SlurmPlan, WhatDoesNotGoUpIsRefused) {
  EXPECT_THAT([] { (void)make_slurm_plan({.gpus_per_node = 4, .n_parts = 3}); },
              throws_error(ErrorCode::kInvalidArgument, "4 GPUs can't be divided", "take 3 each"));
  EXPECT_THAT([] { (void)make_slurm_plan({.n_parts = 2}); },
              throws_error(ErrorCode::kInvalidArgument, "give --gpus-per-node"));
  EXPECT_THAT([] { (void)make_slurm_plan({.n_nodes = 0}); },
              throws_error(ErrorCode::kInvalidArgument, "at least 1"));
}

TEST(SlurmPlan, TheScriptAsksForIt) {
  EXPECT_EQ(
      batch_script(
          {.n_nodes = 3, .tasks_per_node = 2, .n_tasks = 6, .gpus_per_node = 4, .cpus_per_task = 8},
          "./train --epochs 3"),
      "#!/bin/sh\n"
      "#SBATCH --nodes=3\n"
      "#SBATCH --ntasks-per-node=2\n"
      "#SBATCH --gres=gpu:4\n"
      "#SBATCH --cpus-per-task=8\n"
      "# 6 ranks\n"
      "srun --cpus-per-task=\"$SLURM_CPUS_PER_TASK\" ./train --epochs 3\n");
}

TEST(SlurmPlan, TheScriptLeavesToSlurmWhatWasNotWished) {
  EXPECT_EQ(batch_script({.n_nodes = 2, .tasks_per_node = 3, .n_tasks = 6}, "./train"),
            "#!/bin/sh\n"
            "#SBATCH --nodes=2\n"
            "#SBATCH --ntasks-per-node=3\n"
            "# 6 ranks\n"
            "srun ./train\n");
}

}  // namespace
}  // namespace unisono::cli
