#include "unisono/peers/diagnostics_store.h"

#include <cstddef>
#include <iterator>

#include <gtest/gtest.h>

#include "unisono/store/hash_store.h"

namespace unisono::peers {
namespace {

constexpr std::chrono::seconds kNow{0};

class DiagnosticsStoreTest : public ::testing::Test {
 protected:
  std::shared_ptr<store::HashStore> store_ = std::make_shared<store::HashStore>();
  StoreAccess access_{.connect = [this](std::chrono::milliseconds) { return store_; }};
  DiagnosticsStore mine_{access_, "group", 0};
  DiagnosticsStore theirs_{access_, "group", 1};
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
  // The entries include an invalid rank and an invalid error code.
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
  const std::vector<transport::CallRecord> calls{
      {.sequence = 7, .descriptor = {.kind = transport::OperationKind::kBarrier}},
      {.sequence = 8, .descriptor = {.kind = transport::OperationKind::kAllReduce, .count = 5}}};
  theirs_.tell_calls(calls);
  const std::vector<transport::CallRecord> told = mine_.ask_calls(1);
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
}  // namespace unisono::peers
