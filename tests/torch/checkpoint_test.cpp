#include "unisono/torch/checkpoint/checkpoint.h"

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"

#include "canonical.h"
#include "rank_threads.h"
#include "support/temporary_folder.h"

namespace unisono::testing {
namespace {

using ::testing::HasSubstr;

class CheckpointTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name = "model.pt") const {
    return folder_.path() + "/" + name;
  }

  test::TemporaryFolder folder_;
};

torch::nn::Sequential make_small_net() {
  return torch::nn::Sequential(
      torch::nn::Conv2d(1, 2, 3), torch::nn::BatchNorm2d(2), torch::nn::Linear(4, 3));
}

TEST_F(CheckpointTest, OneFileThatANonDistributedProgramLoads) {
  std::vector<std::vector<at::Tensor>> saved(3);
  run_ranks(3, [&](const std::shared_ptr<ProcessGroup>& group) {
    DistributedDataParallel model(make_small_net(), group);
    const torch::NoGradGuard no_grad;
    if (group->rank() != 0) {
      model.parameters()[0].add_(1);
    }
    save_on_rank_0(*group, *model.module(), path());
    EXPECT_TRUE(std::filesystem::exists(path())) << "rank " << group->rank();
    saved[static_cast<std::size_t>(group->rank())] = clone_all(model.parameters());
  });
  EXPECT_THAT(folder_.names(), ::testing::ElementsAre("model.pt"));
  torch::nn::Sequential loaded = make_small_net();
  torch::load(loaded, path());
  EXPECT_TRUE(is_bit_equal(clone_all(loaded->parameters()), saved[0]));
  EXPECT_FALSE(is_bit_equal(clone_all(loaded->parameters()), saved[1]));

  torch::serialize::InputArchive archive;
  archive.load_from(path());
  EXPECT_THAT(archive.keys(), ::testing::UnorderedElementsAre("0", "1", "2"));
}

TEST_F(CheckpointTest, EveryRankLearnsWhyItCouldNotBeSaved) {
  run_ranks(3, [&](const std::shared_ptr<ProcessGroup>& group) {
    const torch::nn::Sequential module = make_small_net();
    try {
      save_on_rank_0(*group, *module, path("missing/model.pt"));
      ADD_FAILURE() << "there is no such folder";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kSystem);
      EXPECT_THAT(error.what(), HasSubstr("create the folder"));
    }
    save_on_rank_0(*group, *module, path());
  });
  EXPECT_THAT(folder_.names(), ::testing::ElementsAre("model.pt"));
}

TEST_F(CheckpointTest, ARankThatCouldNotSaveIsToldBeforeTraining) {
  run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    check_can_save_on_rank_0(*group, path());
    try {
      check_can_save_on_rank_0(*group, path("missing/model.pt"));
      ADD_FAILURE() << "there is no such folder";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("create the folder " + path("missing")));
    }
  });
  EXPECT_THAT(folder_.names(), ::testing::IsEmpty());
}

TEST_F(CheckpointTest, AFullDiskLeavesNoPartOfAFile) {
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit{};
  ::getrlimit(RLIMIT_FSIZE, &old_limit);
  const rlimit limit{4096, old_limit.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &limit);
  const torch::nn::Linear module(100, 100);
  EXPECT_THROW(save_module(*module, path()), Error);
  ::setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_THAT(folder_.names(), ::testing::IsEmpty());
}

TEST_F(CheckpointTest, AnyArchiveCanBeSaved) {
  const torch::nn::Linear module(2, 2);
  torch::optim::SGD optimizer(module->parameters(), torch::optim::SGDOptions(0.5).momentum(0.9));
  save_archive(path(), [&](torch::serialize::OutputArchive& archive) { optimizer.save(archive); });
  torch::optim::SGD other(module->parameters(), torch::optim::SGDOptions(0.1));
  torch::load(other, path());
  EXPECT_EQ(static_cast<torch::optim::SGDOptions&>(other.param_groups()[0].options()).lr(), 0.5);
}

}  // namespace
}  // namespace unisono::testing
