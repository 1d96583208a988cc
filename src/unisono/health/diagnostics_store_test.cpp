#include "unisono/health/diagnostics_store.h"

#include <chrono>
#include <cstddef>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/rendezvous/connect_store.h"
#include "unisono/store/hash_store.h"
#include "unisono/transport/descriptor.h"

namespace unisono::health {
namespace {

constexpr std::chrono::seconds kNow{0};

class DiagnosticsStoreTest : public ::testing::Test {
 protected:
  DiagnosticsStoreTest() {
    session_.connect_again = [this](std::chrono::milliseconds) { return store_; };
  }

  std::shared_ptr<store::HashStore> store_ = std::make_shared<store::HashStore>();
  rendezvous::StoreSession session_{};
  DiagnosticsStore mine_{session_, "group", 0};
  DiagnosticsStore theirs_{session_, "group", 1};
};

TEST_F(DiagnosticsStoreTest, HasTheReasonsOfOtherRanksAndNotOnesOwn) {
  EXPECT_FALSE(theirs_.find_first());
  EXPECT_TRUE(mine_.publish({ErrorCode::kTimeout, "rank 2 is late"}, false));
  EXPECT_FALSE(mine_.find_first());
  const std::optional<Reason> first = theirs_.find_first();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->rank, 0);
  EXPECT_EQ(first->error.code(), ErrorCode::kTimeout);
  EXPECT_STREQ(first->error.what(), "rank 2 is late");
  EXPECT_EQ(theirs_.read_others("", Deadline::after(kNow)), "rank 2 is late");
  EXPECT_EQ(theirs_.read_others("they say: rank 2 is late", Deadline::after(kNow)), "");
}

TEST_F(DiagnosticsStoreTest, PassesOverWhatNoRankCanHaveWritten) {
  // Among them a rank that is none, and an error that is none.
  const std::string junk[] = {"",
                              "1\t2\tlate",
                              std::string(7, '\0'),
                              std::string(16, '\xff'),
                              std::string(4, '\xff') + std::string(12, '\0'),
                              std::string(5, '\0') + '\x7f' + std::string(10, '\0')};
  for (std::size_t number = 1; number <= std::size(junk); ++number) {
    EXPECT_EQ(store_->add("group/failures/n", 1), static_cast<int>(number));
    store_->set("group/failures/" + std::to_string(number), junk[number - 1]);
  }
  EXPECT_FALSE(theirs_.find_first());
  EXPECT_TRUE(mine_.publish({ErrorCode::kSystem, "no memory"}, true));
  EXPECT_EQ(theirs_.read_others("", Deadline::after(kNow)), "no memory");
}

TEST_F(DiagnosticsStoreTest, HasTheCallsThatARankToldLast) {
  EXPECT_TRUE(mine_.ask_calls(1).empty());
  const std::vector<CallRecord> calls{
      {.sequence = 7, .descriptor = {.kind = transport::OperationKind::kBarrier}},
      {.sequence = 8, .descriptor = {.kind = transport::OperationKind::kAllReduce, .count = 5}}};
  theirs_.tell_calls(calls);
  const std::vector<CallRecord> told = mine_.ask_calls(1);
  ASSERT_EQ(told.size(), calls.size());
  EXPECT_EQ(told[1].sequence, 8U);
  EXPECT_EQ(told[1].descriptor, calls[1].descriptor);
}

TEST_F(DiagnosticsStoreTest, HasNothingOnceItIsGivenUp) {
  EXPECT_TRUE(mine_.publish({ErrorCode::kTimeout, "late"}, false));
  theirs_.give_up();
  EXPECT_FALSE(theirs_.find_first());
  EXPECT_FALSE(theirs_.publish({ErrorCode::kTimeout, "late, too"}, false));
  EXPECT_EQ(store_.use_count(), 2) << "mine_ still has it";
}

}  // namespace
}  // namespace unisono::health
