#include "unisono/rendezvous/assign.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/methods/init_method.h"
#include "unisono/rendezvous/testing/fake_environment.h"

namespace unisono::rendezvous {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

LaunchInfo assign_by(const std::string& text) {
  return assign(parse_init_method(text),
                fake({{"MASTER_ADDR", "node-a"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}}));
}

TEST(Assign, EachSchemeHasItsSource) {
  EXPECT_EQ(assign_by("env://").master_addr, "node-a");
  EXPECT_EQ(assign_by("env://").rank, 1);
  const LaunchInfo tcp = assign_by("tcp://node-b:1234?rank=3&world_size=4");
  EXPECT_EQ(tcp.master_addr, "node-b");
  EXPECT_EQ(tcp.rank, 3);
}

TEST(Assign, EnvHasNoOptions) {
  EXPECT_THAT([] { (void)assign_by("env://?rank=0"); },
              ::testing::ThrowsMessage<Error>(HasSubstr("nothing may stand behind env://")));
}

}  // namespace
}  // namespace unisono::rendezvous
