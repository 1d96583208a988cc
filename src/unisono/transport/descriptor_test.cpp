#include "unisono/transport/descriptor.h"

#include <gtest/gtest.h>

#include "unisono/transport/frame.h"

namespace unisono::transport {
namespace {

Stall wait_of(std::vector<LateRank> late, std::string text) {
  return {.id = {.group = 3, .is_message = true, .sequence = 1ULL << 40U},
          .rank = 5,
          .late = std::move(late),
          .is_for_any = true,
          .text = std::move(text),
          .gone = "rank 2"};
}

TEST(Stall, ArrivesAsItWasSent) {
  const Stall sent = wait_of({{1, 12}, {4, 1ULL << 40U}}, "recv of group 3");
  const std::optional<Stall> read = decode_stall(encode(sent));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->id, sent.id);
  EXPECT_EQ(read->rank, sent.rank);
  EXPECT_EQ(read->late, sent.late);
  EXPECT_EQ(read->is_for_any, sent.is_for_any);
  EXPECT_EQ(read->text, sent.text);
  EXPECT_EQ(read->gone, sent.gone);
}

TEST(Stall, OfManyLateRanksAndALongTextTheFirstPartArrives) {
  const std::vector<LateRank> late(10'000, {.rank = 7});
  Stall wait = wait_of(late, std::string(10'000, 'x'));
  wait.is_for_any = false;
  const auto read = decode_stall(encode(wait));
  ASSERT_TRUE(read);
  EXPECT_LE(encode(wait).size(), kMaxAbortBytes);
  EXPECT_FALSE(read->late.empty());
  EXPECT_FALSE(read->text.empty());
  // The wait would end with a message from one of the omitted ranks.
  wait.is_for_any = true;
  const auto for_any = decode_stall(encode(wait));
  ASSERT_TRUE(for_any);
  EXPECT_TRUE(for_any->late.empty());
}

TEST(Stall, IsNotReadFromFewerBytesThanItHas) {
  const std::vector<std::byte> payload = encode(wait_of({}, "x"));
  ASSERT_TRUE(decode_stall(payload));
  for (std::size_t n = 0; n < payload.size(); ++n) {
    EXPECT_FALSE(decode_stall(std::span(payload).first(n))) << n;
  }
}

TEST(Stall, IsNotReadFromBytesThatAreNoWait) {
  std::vector<std::byte> payload = encode(wait_of({{.rank = 1}}, "x"));
  payload.push_back(std::byte{0});
  EXPECT_FALSE(decode_stall(payload));
  EXPECT_FALSE(decode_stall(std::vector<std::byte>(200, std::byte{0xFF})));
}

}  // namespace
}  // namespace unisono::transport
