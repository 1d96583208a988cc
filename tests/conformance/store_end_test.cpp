// The launcher's store ends while ranks train.
#include <chrono>
#include <latch>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/comm/process_group.h"
#include "unisono/net/address.h"
#include "unisono/store/tcp_store.h"

#include "support/ranks.h"

namespace unisono {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void train(int rank, const std::string& port, std::latch& has_met, std::latch& has_ended) {
  const auto group = create_process_group(
      {.environment = test::fake_environment({{"MASTER_ADDR", "127.0.0.1"},
                                              {"MASTER_PORT", port},
                                              {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                              {"RANK", std::to_string(rank)},
                                              {"WORLD_SIZE", "2"},
                                              {"UNISONO_ARENA_BYTES", "1G"}})});
  has_met.count_down();
  has_ended.wait();
  std::vector<float> ones(10, 1.0F);
  group->all_reduce(as_buffer(std::span(ones)));
  EXPECT_EQ(ones, std::vector<float>(10, 2.0F));
  const auto again = group->new_group(std::vector<int>{0, 1});
  again->barrier();
  again->destroy();
  group->destroy();
}

TEST(StoreEnd, IsNamedByEveryRankWithinASecondAndTheJobGoesOn) {
  auto host = std::make_unique<store::TcpStoreHost>(
      store::TcpServerOptions{.address = *net::Address::parse("127.0.0.1", 0), .secret = ""});
  const std::string port = std::to_string(host->address().port());
  std::latch has_met(2);
  std::latch has_ended(1);
  ::testing::internal::CaptureStderr();
  std::thread other([&] { train(1, port, has_met, has_ended); });
  std::thread one([&] { train(0, port, has_met, has_ended); });
  has_met.wait();
  host.reset();
  // The ranks must report the loss within this second.
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const std::string said = ::testing::internal::GetCapturedStderr();
  has_ended.count_down();
  one.join();
  other.join();
  const std::string message = "the job's store at 127.0.0.1:" + port + " is gone";
  EXPECT_THAT(said,
              AllOf(HasSubstr("[unisono rank 0] warning: " + message),
                    HasSubstr("[unisono rank 1] warning: " + message)));
}

}  // namespace
}  // namespace unisono
