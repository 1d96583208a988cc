#include "unisono/rendezvous/local_device.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/rendezvous/testing/launched_ranks.h"

namespace unisono::rendezvous {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::string device_of(int local_rank, int n_gpus) {
  return describe(device_of_local_rank(local_rank, n_gpus));
}

TEST(LocalDevice, IsTheGpuOfTheRanksNumber) {
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(device_of(rank, 0), "cpu");
    EXPECT_EQ(device_of(rank, 8), "cuda:" + std::to_string(rank));
  }
  EXPECT_EQ(device_of(2, 2), "cuda:0");
  EXPECT_EQ(device_of(5, 2), "cuda:1");
}

TEST(LocalDevice, TheNumberIsTheUsersOrTheLaunchers) {
  EXPECT_EQ(own_local_rank(fake({})), std::nullopt);
  EXPECT_EQ(own_local_rank(fake({{"LOCAL_RANK", "3"}})), 3);
  const FakeVariables open_mpi{{"OMPI_COMM_WORLD_SIZE", "4"},
                               {"OMPI_COMM_WORLD_RANK", "3"},
                               {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}};
  EXPECT_EQ(own_local_rank(fake(open_mpi)), 1);
  EXPECT_EQ(own_local_rank(fake(changed(open_mpi, {{"LOCAL_RANK", "0"}}))), 0);
}

TEST(LocalDevice, ANumberThatIsNoneIsNamedWithItsVariable) {
  for (const char* text : {"abc", "-1", "", "1.5", "99999999999"}) {
    EXPECT_THAT([&] { (void)own_local_rank(fake({{"LOCAL_RANK", text}})); },
                ThrowsMessage<Error>(HasSubstr("LOCAL_RANK=\"" + std::string(text) + "\"")));
  }
}

TEST(LocalDevice, RanksThatShareAGpuAreNamed) {
  EXPECT_EQ(describe_shared_gpus(8, 0), "");
  EXPECT_EQ(describe_shared_gpus(8, 8), "");
  EXPECT_THAT(describe_shared_gpus(3, 2), HasSubstr("local ranks 0 and 2 both use cuda:0: "));
  EXPECT_THAT(describe_shared_gpus(5, 2),
              AllOf(HasSubstr("local ranks 0, 2 and 4 all use cuda:0"),
                    HasSubstr("local ranks 1 and 3 both use cuda:1"),
                    HasSubstr("5 ranks for 2 GPUs")));
}

TEST(LocalDevice, WhereThatIsAnErrorItSaysWhatToDo) {
  const Device first{.type = DeviceType::kCuda, .index = 0};
  const Device second{.type = DeviceType::kCuda, .index = 1};
  EXPECT_EQ(explain_same_gpu({first, second}, 0), "");
  EXPECT_EQ(explain_same_gpu({Device{}, Device{}}, 0), "");
  EXPECT_THAT(explain_same_gpu({first, first, second}, 4),
              AllOf(HasSubstr("ranks 4 and 5 are both on cuda:0: "), HasSubstr("LOCAL_RANK")));
}

}  // namespace
}  // namespace unisono::rendezvous
