#include "unisono/store/prefix_store.h"

#include <memory>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/store/hash_store.h"
#include "unisono/store/testing/stores.h"

namespace unisono::store {
namespace {

using ::testing::ElementsAre;
using testing::soon;
using ::testing::UnorderedElementsAre;

TEST(PrefixStore, PrefixesDoNotMeet) {
  const auto whole = std::make_shared<HashStore>();
  PrefixStore left("left", whole);
  PrefixStore right("right", whole);
  left.set("k", "1");
  right.set("k", "2");
  whole->set("lefthanded", "3");
  EXPECT_EQ(left.get("k", soon()), "1");
  EXPECT_EQ(whole->get("right/k", soon()), "2");
  EXPECT_THAT(left.list_keys(), ElementsAre("k"));
  EXPECT_THAT(whole->list_keys(), UnorderedElementsAre("left/k", "right/k", "lefthanded"));
  EXPECT_EQ(left.num_keys(), 3) << "as PyTorch counts";
  EXPECT_TRUE(left.delete_key("k"));
  EXPECT_EQ(left.try_get("k"), std::nullopt);
  EXPECT_EQ(right.try_get("k"), "2");
}

TEST(PrefixStore, TheInnermostPrefixIsOutermostInTheKey) {
  const auto whole = std::make_shared<HashStore>();
  PrefixStore nested("b", std::make_shared<PrefixStore>("a", whole));
  nested.set("k", "v");
  EXPECT_THAT(whole->list_keys(), ElementsAre("a/b/k"));
  EXPECT_THAT(nested.list_keys(), ElementsAre("k"));
}

TEST(PrefixStore, OfNoStoreIsRefused) {
  EXPECT_THROW(PrefixStore("p", nullptr), Error);
}

}  // namespace
}  // namespace unisono::store
