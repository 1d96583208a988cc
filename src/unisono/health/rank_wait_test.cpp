#include "unisono/health/rank_wait.h"

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/transport/frame.h"

namespace unisono::health {
namespace {

RankWait wait_of(std::vector<LateRank> late, std::string text) {
  return {.id = {.group = 3, .is_message = true, .sequence = 1ULL << 40U},
          .rank = 5,
          .late = std::move(late),
          .is_for_any = true,
          .text = std::move(text),
          .gone = "rank 2"};
}

TEST(RankWait, ArrivesAsItWasSent) {
  const RankWait sent = wait_of({{1, 12}, {4, 1ULL << 40U}}, "recv of group 3");
  const std::optional<RankWait> read = decode_wait(encode_wait(sent));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->id, sent.id);
  EXPECT_EQ(read->rank, sent.rank);
  EXPECT_EQ(read->late, sent.late);
  EXPECT_EQ(read->is_for_any, sent.is_for_any);
  EXPECT_EQ(read->text, sent.text);
  EXPECT_EQ(read->gone, sent.gone);
}

TEST(RankWait, OfManyLateRanksAndALongTextTheFirstPartArrives) {
  const std::vector<LateRank> late(10'000, {.rank = 7});
  RankWait wait = wait_of(late, std::string(10'000, 'x'));
  wait.is_for_any = false;
  const auto read = decode_wait(encode_wait(wait));
  ASSERT_TRUE(read);
  EXPECT_LE(encode_wait(wait).size(), transport::kMaxAbortBytes);
  EXPECT_FALSE(read->late.empty());
  EXPECT_FALSE(read->text.empty());
  // It would end with a message from one of those that are left out.
  wait.is_for_any = true;
  const auto for_any = decode_wait(encode_wait(wait));
  ASSERT_TRUE(for_any);
  EXPECT_TRUE(for_any->late.empty());
}

TEST(RankWait, IsNotReadFromFewerBytesThanItHas) {
  const std::vector<std::byte> payload = encode_wait(wait_of({}, "x"));
  ASSERT_TRUE(decode_wait(payload));
  for (std::size_t n = 0; n < payload.size(); ++n) {
    EXPECT_FALSE(decode_wait(std::span(payload).first(n))) << n;
  }
}

TEST(RankWait, IsNotReadFromBytesThatAreNoWait) {
  std::vector<std::byte> payload = encode_wait(wait_of({{.rank = 1}}, "x"));
  payload.push_back(std::byte{0});
  EXPECT_FALSE(decode_wait(payload));
  EXPECT_FALSE(decode_wait(std::vector<std::byte>(200, std::byte{0xFF})));
}

}  // namespace
}  // namespace unisono::health
