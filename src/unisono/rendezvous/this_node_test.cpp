#include "unisono/rendezvous/this_node.h"

#include <sys/socket.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

namespace unisono::rendezvous {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

net::Address ip(const std::string& text) {
  return *net::Address::parse(text, 0);
}

const std::vector<net::Interface> kAll{
    {.name = "lo",
     .index = 1,
     .is_up = true,
     .has_carrier = true,
     .is_loopback = true,
     .addresses = {ip("127.0.0.1"), ip("::1")}},
    {.name = "eth0",
     .index = 2,
     .is_up = true,
     .has_carrier = true,
     .addresses = {ip("10.0.0.2"), ip("fe80::2%lo")}},
    {.name = "ib0",
     .index = 3,
     .is_up = true,
     .has_carrier = true,
     .addresses = {ip("fd00::2"), ip("10.1.0.2")}},
    {.name = "eth1", .index = 4, .is_up = false, .addresses = {ip("10.2.0.2")}},
    {.name = "eth2",
     .index = 5,
     .is_up = true,
     .has_carrier = true,
     .addresses = {ip("fe80::5%lo")}},
};

std::string chosen(const std::string& wanted, const std::string& by_store) {
  const DataInterface choice = choose_data_interface(wanted, kAll, ip(by_store));
  return choice.name + " " + choice.address.ip();
}

TEST(InterfaceChoice, ByDefaultItIsTheOneThatLeadsToTheStore) {
  EXPECT_EQ(chosen("", "10.0.0.2"), "eth0 10.0.0.2");
  EXPECT_EQ(chosen("", "fd00::2"), "ib0 fd00::2");
  EXPECT_EQ(chosen("", "192.0.2.7"), " 192.0.2.7");
}

TEST(InterfaceChoice, ANamesAddressIsOfTheStoresFamilyIfThereIsOne) {
  EXPECT_EQ(chosen("ib0", "10.0.0.2"), "ib0 10.1.0.2");
  EXPECT_EQ(chosen("ib0", "fd00::9"), "ib0 fd00::2");
  EXPECT_EQ(chosen("eth0", "fd00::9"), "eth0 10.0.0.2");
}

TEST(InterfaceChoice, ANetworkMeansTheAddressInIt) {
  EXPECT_EQ(chosen("10.1.0.0/16", "fd00::9"), "ib0 10.1.0.2");
  EXPECT_EQ(chosen("fd00::/16", "10.0.0.2"), "ib0 fd00::2");
  EXPECT_EQ(chosen("10.0.0.2", "10.1.0.2"), "eth0 10.0.0.2");
  std::vector<net::Interface> all = kAll;
  all[1].is_up = false;
  EXPECT_EQ(choose_data_interface("10.0.0.0/8", all, ip("127.0.0.1")).name, "ib0");
}

TEST(InterfaceChoice, WhatCantBeUsedIsRefusedWithWhatThereIs) {
  EXPECT_THAT([] { (void)chosen("eth9", "10.0.0.2"); },
              ThrowsMessage<Error>(
                  AllOf(HasSubstr("UNISONO_INTERFACE=eth9: there is no such interface; there are "),
                        HasSubstr("eth0 (10.0.0.2, "),
                        HasSubstr("eth1 (10.2.0.2, down)"))));
  EXPECT_THAT([] { (void)chosen("10.9.0.0/16", "10.0.0.2"); },
              ThrowsMessage<Error>(HasSubstr("no interface has an address in it")));
  EXPECT_THAT([] { (void)chosen("eth1", "10.0.0.2"); },
              ThrowsMessage<Error>(HasSubstr("eth1 is down")));
  EXPECT_THAT([] { (void)chosen("eth2", "10.0.0.2"); },
              ThrowsMessage<Error>(HasSubstr("eth2 has no address that others can use")));
}

std::vector<std::string> names(const std::vector<net::Interface>& interfaces) {
  std::vector<std::string> list;
  for (const net::Interface& interface : interfaces) {
    list.push_back(interface.name);
  }
  return list;
}

TEST(InterfaceChoice, AMachineAloneIsReachedByTheLoopbackThatItHas) {
  const auto own_of = [](const net::Address& loopback) {
    const net::Interface lo{
        .name = "lo", .index = 1, .is_up = true, .is_loopback = true, .addresses = {loopback}};
    return choose_own_address("", {lo}, std::nullopt).ip();
  };
  EXPECT_EQ(own_of(ip("127.0.0.1")), "127.0.0.1");
  EXPECT_EQ(own_of(ip("::1")), "::1");
}

TEST(InterfaceChoice, AGroupIsJoinedOnAllButLoopbackUnlessItStaysHere) {
  EXPECT_THAT(names(choose_group_interfaces("", kAll, AF_INET, false)), ElementsAre("eth0", "ib0"));
  EXPECT_THAT(names(choose_group_interfaces("", kAll, AF_INET6, false)),
              ElementsAre("eth0", "ib0", "eth2"));
  EXPECT_THAT(names(choose_group_interfaces("", kAll, AF_INET, true)), ElementsAre("lo"));
  EXPECT_THAT(names(choose_group_interfaces("", {kAll[0]}, AF_INET, false)), ElementsAre("lo"));
  EXPECT_THAT(names(choose_group_interfaces("ib0", kAll, AF_INET, false)), ElementsAre("ib0"));
  EXPECT_THAT(names(choose_group_interfaces("ib0", kAll, AF_INET, true)), ElementsAre("lo"));
}

}  // namespace
}  // namespace unisono::rendezvous
