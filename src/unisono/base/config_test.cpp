#include "unisono/base/config.h"

#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

namespace unisono {
namespace {

Environment fake(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) {
      return std::nullopt;
    }
    return found->second;
  };
}

TEST(Config, DefaultsAreThoseOfTheTable) {
  const base::Config config = read_config(fake({}));
  EXPECT_EQ(config.timeout, std::chrono::minutes(30));
  EXPECT_EQ(config.stall, std::chrono::seconds(5));
  EXPECT_EQ(config.log_level, LogLevel::kInfo);
  EXPECT_EQ(config.secret, "");
}

TEST(Config, ValuesAreParsedWithTheirUnits) {
  const base::Config config = read_config(fake({{"UNISONO_TIMEOUT_SECONDS", "0.25"},
                                                {"UNISONO_ARENA_BYTES", "3M"},
                                                {"UNISONO_LOG", "error"},
                                                {"UNISONO_NODE_ID", "left"}}));
  EXPECT_EQ(config.timeout, std::chrono::milliseconds(250));
  EXPECT_EQ(config.arena_bytes, 3 << 20);
  EXPECT_EQ(config.log_level, LogLevel::kError);
  EXPECT_EQ(config.node_id, "left");
}

TEST(Config, OneMessageNamesEveryBadVariable) {
  try {
    (void)read_config(fake({{"UNISONO_TIMEOUT_SECONDS", "-1"},
                            {"UNISONO_ARENA_BYTES", "9999999T"},
                            {"UNISONO_LOG", "loud"}}));
    FAIL() << "bad values must throw";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_STREQ(
        error.what(),
        "settings: UNISONO_LOG=\"loud\" is not one of debug, info, warning, error; "
        "UNISONO_TIMEOUT_SECONDS=\"-1\" is not a number of seconds above 0; "
        "UNISONO_ARENA_BYTES=\"9999999T\" is not a number of bytes, like 512M or 2G, of at most "
        "64T");
  }
}

TEST(Config, PortsAreARangeOrOnePort) {
  EXPECT_FALSE(read_config(fake({})).ports);
  const base::Config range = read_config(fake({{"UNISONO_PORTS", "47000-47999"}}));
  ASSERT_TRUE(range.ports);
  EXPECT_EQ(range.ports->first, 47000);
  EXPECT_EQ(range.ports->last, 47999);
  const base::Config one = read_config(fake({{"UNISONO_PORTS", "65535"}}));
  ASSERT_TRUE(one.ports);
  EXPECT_EQ(one.ports->first, 65535);
  EXPECT_EQ(one.ports->last, 65535);
  for (const char* text :
       {"", "-", "0-10", "10-9", "1-65536", "-5", "5-", "a-b", "1-2-3", "1 - 2"}) {
    EXPECT_THROW((void)read_config(fake({{"UNISONO_PORTS", text}})), Error) << text;
  }
}

TEST(Config, LinksHaveFiguresOfTheirOwn) {
  EXPECT_FALSE(read_config(fake({})).links);
  const base::Config config = read_config(fake(
      {{"UNISONO_LINKS", "latency=17,message=2.5,bandwidth=1.25,meeting=1,local_bandwidth=5"}}));
  ASSERT_TRUE(config.links);
  EXPECT_DOUBLE_EQ(config.links->latency, 17e-6);
  EXPECT_DOUBLE_EQ(config.links->message, 2.5e-6);
  EXPECT_DOUBLE_EQ(config.links->remote_byte, 0.8e-9);
  EXPECT_DOUBLE_EQ(config.links->session, 1e-6);
  EXPECT_DOUBLE_EQ(config.links->local_byte, 0.2e-9);
  const base::Config some = read_config(fake({{"UNISONO_LINKS", "latency=17"}}));
  ASSERT_TRUE(some.links);
  EXPECT_DOUBLE_EQ(some.links->message, LinkCosts().message);
}

TEST(Config, LinksAreNoOtherTextThanFigures) {
  for (const char* text : {"",
                           "latency",
                           "latency=",
                           "latency=0",
                           "latency=-1",
                           "latency=nan",
                           "latency=inf",
                           "latency=1e300",
                           "speed=1",
                           "latency=1,",
                           ",latency=1",
                           "latency=1 message=2",
                           "latency=1us"}) {
    EXPECT_THROW((void)read_config(fake({{"UNISONO_LINKS", text}})), Error) << text;
  }
}

TEST(Config, NoSecondsThatWouldNeverOrAlreadyBeOver) {
  for (const char* text : {"", "0", "nan", "inf", "1e300", "5 s", " 5"}) {
    EXPECT_THROW((void)read_config(fake({{"UNISONO_STALL_SECONDS", text}})), Error) << text;
  }
}

TEST(Config, NamesOfThisProcessesVariablesAreFoundByPrefix) {
  ASSERT_EQ(::setenv("UNISONO_CONFIG_TEST_B", "a=b", 1), 0);
  ASSERT_EQ(::setenv("UNISONO_CONFIG_TEST_A", "", 1), 0);
  EXPECT_EQ(process_variables("UNISONO_CONFIG_TEST_"),
            (std::vector<std::string>{"UNISONO_CONFIG_TEST_A", "UNISONO_CONFIG_TEST_B"}));
}

TEST(Config, NamesAreUniqueAndOurs) {
  std::set<std::string> names;
  for (const ConfigRow& row : config_table()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_THAT(row.name, ::testing::StartsWith("UNISONO_"));
    EXPECT_STRNE(row.help, "");
  }
}

}  // namespace
}  // namespace unisono
