// The store serves the rendezvous. Ranks in training send no requests to the store.
#include <chrono>
#include <cstddef>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"
#include "unisono/store/hash_store.h"
#include "unisono/store/testing/counting_store.h"

#include "support/ranks.h"

namespace unisono {
namespace {

using store::testing::CountingStore;

constexpr int kSteps = 100;

// Communication of one step of data-parallel training.
void step(ProcessGroup& group, std::vector<float>& gradients) {
  const Buffer buffer = as_buffer(std::span(gradients));
  group.broadcast(buffer);
  group.all_reduce(buffer);
  const int next = (group.rank() + 1) % group.world_size();
  const int previous = (group.rank() + group.world_size() - 1) % group.world_size();
  std::vector<float> received(gradients.size());
  const Work work = group.send_async(buffer, next);
  group.recv(as_buffer(std::span(received)), previous);
  work.wait();
}

class QuietStore : public ::testing::TestWithParam<std::vector<std::string>> {
 protected:
  void train(int rank) {
    const auto shared = std::make_shared<CountingStore>(store_);
    const auto group = create_process_group(
        {.store = shared,
         // Connection for reports about late or failed ranks, as on a busy machine. Its requests
         // are not counted.
         .connect_again = [this](std::chrono::milliseconds) { return uncounted_; },
         .rank = rank,
         .world_size = static_cast<int>(GetParam().size()),
         .environment = test::fake_environment(
             {{"UNISONO_NODE_ID", GetParam()[static_cast<std::size_t>(rank)]},
              {"UNISONO_ARENA_BYTES", "1G"}})});
    const int n_to_meet = shared->n_requests();
    EXPECT_GT(n_to_meet, 0);
    std::vector<float> gradients(5000, 0.0F);
    for (int n = 0; n < kSteps; ++n) {
      step(*group, gradients);
    }
    // The parent's operations create a subgroup.
    const auto inner = group->split(0, -rank);
    step(*inner, gradients);
    inner->destroy();
    EXPECT_EQ(shared->n_requests(), n_to_meet);
    group->destroy();
    EXPECT_EQ(shared.use_count(), 1) << "a rank that has left keeps the store";
  }

 private:
  store::HashStore store_;
  std::shared_ptr<store::Store> uncounted_ = std::make_shared<CountingStore>(store_);
};

TEST_P(QuietStore, IsAskedByRanksThatMeetAndNotByThoseThatTrain) {
  std::vector<std::future<void>> ranks;
  for (std::size_t rank = 0; rank < GetParam().size(); ++rank) {
    ranks.push_back(
        std::async(std::launch::async, [this, rank] { train(static_cast<int>(rank)); }));
  }
  for (std::future<void>& rank : ranks) {
    rank.get();
  }
}

INSTANTIATE_TEST_SUITE_P(Nodes,
                         QuietStore,
                         ::testing::Values(std::vector<std::string>{"a", "a", "a"},
                                           std::vector<std::string>{"a", "b", "c"}));

}  // namespace
}  // namespace unisono
