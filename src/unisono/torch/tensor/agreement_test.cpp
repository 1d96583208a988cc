#include "unisono/torch/tensor/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace unisono {
namespace {

using ::testing::Optional;

const std::vector<Property>& properties() {
  static const std::vector<Property> kClaims{{"parameter 'a'", "f32[2, 3]"},
                                             {"parameter 'b'", "f32[3]"}};
  return kClaims;
}

TEST(Agreement, EqualClaimsDoNotDiffer) {
  EXPECT_EQ(find_difference(properties(), 0, properties(), 1), std::nullopt);
}

TEST(Agreement, AnotherShapeNamesBothRanksAndBothShapes) {
  auto other = properties();
  other[1].value = "f32[4]";
  EXPECT_THAT(find_difference(properties(), 0, other, 2),
              Optional<std::string>("parameter 'b' is f32[3] on rank 0 and f32[4] on rank 2"));
}

TEST(Agreement, AnotherNameShowsBoth) {
  auto other = properties();
  other[0].what = "parameter 'c'";
  EXPECT_THAT(find_difference(properties(), 0, other, 1),
              Optional<std::string>("rank 0 has parameter 'a' (f32[2, 3]) where rank 1 has "
                                    "parameter 'c' (f32[2, 3])"));
}

TEST(Agreement, AMissingClaimIsNamedFromEitherSide) {
  auto other = properties();
  other.pop_back();
  EXPECT_THAT(find_difference(properties(), 0, other, 1),
              Optional<std::string>("rank 0 has parameter 'b' (f32[3]), which rank 1 lacks"));
  EXPECT_THAT(find_difference(other, 0, properties(), 1),
              Optional<std::string>("rank 1 has parameter 'b' (f32[3]), which rank 0 lacks"));
}

}  // namespace
}  // namespace unisono
