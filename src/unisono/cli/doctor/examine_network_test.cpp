#include "unisono/cli/doctor/examine_network.h"

#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/config.h"
#include "unisono/base/port_range.h"
#include "unisono/cli/doctor/finding.h"
#include "unisono/net/address.h"
#include "unisono/net/interfaces.h"

#include "support/temporary_folder.h"

namespace unisono::cli::doctor {
namespace {

using test::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;

net::Address address(const std::string& ip) {
  return net::Address::parse(ip, 0).value_or(net::Address::any(AF_INET, 0));
}

std::vector<net::Interface> machine() {
  return {{.name = "lo",
           .index = 1,
           .is_up = true,
           .is_loopback = true,
           .addresses = {address("127.0.0.1")}},
          {.name = "eth0",
           .index = 2,
           .is_up = true,
           .addresses = {address("10.0.0.1"), address("fd00::1")}},
          {.name = "ib0", .index = 3, .addresses = {address("10.1.0.1")}}};
}

TEST(ExamineInterfaces, ListsStateAddressesAndSpeed) {
  const TemporaryFolder root;
  (void)root.write("sys/class/net/eth0/mtu", "9000\n");
  (void)root.write("sys/class/net/eth0/speed", "25000\n");
  (void)root.write("sys/class/net/ib0/speed", "-1\n");
  EXPECT_THAT(examine_interfaces(machine(), root.path()),
              ElementsAre(Field(&Finding::text, "lo: up, loopback, 127.0.0.1"),
                          Field(&Finding::text, "eth0: up, 10.0.0.1, fd00::1, MTU 9000, 25 Gbit/s"),
                          Field(&Finding::text, "ib0: down, 10.1.0.1")));
}

TEST(ExamineInterfaces, LoopbackThatIsDownIsAProblem) {
  const TemporaryFolder root;
  std::vector<net::Interface> interfaces = machine();
  interfaces[0].is_up = false;
  const Findings findings = examine_interfaces(interfaces, root.path());
  EXPECT_EQ(findings.back().state, State::kProblem);
  EXPECT_THAT(findings.back().advice, HasSubstr("ip link set lo up"));
}

TEST(ExamineDataPath, IsTheWayToTheMeetingPlace) {
  const Route route{.to = "alpha", .source = address("10.0.0.1")};
  const Findings findings = examine_data_path({}, {}, route, machine());
  ASSERT_EQ(findings.size(), 1);
  EXPECT_EQ(findings[0].state, State::kOk);
  EXPECT_THAT(findings[0].text,
              HasSubstr("eth0 (10.0.0.1): the way to alpha, where the ranks meet"));
  EXPECT_EQ(examine_data_path({}, {}, {}, machine()).at(0).text, "no route to other machines");
}

TEST(ExamineDataPath, TheChosenInterfaceMustBeThere) {
  const Route route{.to = "alpha", .source = address("10.0.0.1")};
  Config config;
  config.interface = "eth0";
  EXPECT_THAT(examine_data_path(config, {}, route, machine()).at(0).text,
              HasSubstr("eth0 (10.0.0.1): UNISONO_INTERFACE=eth0"));
  for (const char* const wrong : {"ib0", "eth7", "192.168.0.0/16"}) {
    config.interface = wrong;
    const Findings findings = examine_data_path(config, {}, route, machine());
    EXPECT_EQ(findings.at(0).state, State::kProblem) << wrong;
    EXPECT_THAT(findings[0].text, HasSubstr(wrong));
  }
}

TEST(ExamineDataPath, TheRangeOfPortsMustDoForTheNode) {
  Config config;
  config.ports = PortRange{.first = 40000, .last = 40001};
  Place place{.is_in_job = true, .local_world_size = 2};
  EXPECT_EQ(examine_data_path(config, place, {}, machine()).at(1).state, State::kInfo);
  place.local_world_size = 3;
  const Finding narrow = examine_data_path(config, place, {}, machine()).at(1);
  EXPECT_EQ(narrow.state, State::kProblem);
  EXPECT_THAT(narrow.text, HasSubstr("UNISONO_PORTS=40000-40001 has 2 ports"));
}

TEST(FindSource, LoopbackIsReachedFromLoopback) {
  const std::optional<net::Address> source =
      find_source(net::Address::parse("127.0.0.1", 9).value_or(net::Address::any(AF_INET, 0)));
  ASSERT_TRUE(source.has_value());
  EXPECT_TRUE(source->is_loopback());
}

}  // namespace
}  // namespace unisono::cli::doctor
