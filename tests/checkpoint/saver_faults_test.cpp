// If one rank fails before any data is saved, all ranks receive the error.
#include <pthread.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/checkpoint/folder.h"
#include "unisono/checkpoint/save.h"
#include "unisono/checkpoint/tensor_box.h"
#include "unisono/comm/process_group.h"

#include "support/ranks.h"
#include "support/starvation.h"
#include "support/temporary_folder.h"
#include "support/throws_error.h"

namespace unisono::checkpoint {
namespace {

TEST(SaverFaults, ARankWithoutMemoryForTheCopyFailsTheSaveOnAll) {
  const test::TemporaryFolder folder;
  test::run_ranks(test::one_node(3), [&](ProcessGroup& group) {
    Saver saver(group, folder.path());
    const std::vector<std::byte> bytes(4096);
    const std::vector<TensorPart> parts{
        {.tensor = {.name = std::to_string(group.rank()), .dtype = DType::kUInt8, .shape = {4096}},
         .box = {.offsets = {0}, .sizes = {4096}},
         .bytes = bytes}};
    if (group.rank() == 1) {
      ::pthread_setname_np(::pthread_self(), "starved");
      const test::Starvation starvation("starved", 0, 1);
      EXPECT_NO_THROW(saver.save_async(1, parts));
      EXPECT_TRUE(starvation.has_struck());
    } else {
      saver.save_async(1, parts);
    }
    EXPECT_THAT([&] { saver.save_async(2, parts); },
                test::throws_error(ErrorCode::kInternal, "rank 1 of 3: ", "bad_alloc"));
    // The ranks are synchronized again.
    saver.save_async(3, parts);
    saver.wait();
  });
  EXPECT_THAT(list_steps(folder.path()), ::testing::ElementsAre(3));
}

TEST(SaverFaults, AnObjectThatIsNoExceptionIsAnErrorOnAllRanks) {
  test::run_ranks(test::one_node(2), [](ProcessGroup& group) {
    const auto step = [&]() -> std::string {
      if (group.rank() == 1) {
        throw 7;
      }
      return "done";
    };
    EXPECT_THAT([&] { (void)do_on_all(group, {}, step); },
                test::throws_error(ErrorCode::kInternal, "rank 1 of 2: ", "is no std::exception"));
  });
}

}  // namespace
}  // namespace unisono::checkpoint
