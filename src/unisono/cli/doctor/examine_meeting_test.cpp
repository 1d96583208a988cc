#include "unisono/cli/doctor/examine_meeting.h"

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/cli/doctor/finding.h"
#include "unisono/net/address.h"
#include "unisono/net/socket.h"
#include "unisono/rendezvous/launch_info.h"

#include "support/ranks.h"
#include "support/temporary_folder.h"

namespace unisono::cli::doctor {
namespace {

using test::fake_environment;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

net::Address address(const std::string& ip) {
  return net::Address::parse(ip, 0).value_or(net::Address::any(AF_INET, 0));
}

// A machine 10.0.0.1 that knows the names alpha (itself), beta and localhost; port 29511 is held.
MeetingSources sources() {
  return {.resolve = [](const std::string& host) -> std::vector<net::Address> {
            if (host == "alpha") {
              return {address("10.0.0.1")};
            }
            if (host == "beta") {
              return {address("10.0.0.2")};
            }
            if (host == "localhost") {
              return {address("127.0.0.1")};
            }
            throw Error(ErrorCode::kNotFound, "nobody knows " + host);
          },
          .look_at_port = [](std::uint16_t port) -> PortState {
            if (port == 29511) {
              return {.is_free = false, .holder = "process 4123 (python3 train.py)"};
            }
            return {};
          },
          .interfaces = {{.name = "lo",
                          .is_up = true,
                          .has_carrier = true,
                          .addresses = {address("127.0.0.1")}},
                         {.name = "eth0", .addresses = {address("10.0.0.1")}}}};
}

Place place(const std::string& master_addr, int rank = 0) {
  return {.is_in_job = true,
          .launch_info =
              rendezvous::LaunchInfo{
                  .master_addr = master_addr, .master_port = 29511, .rank = rank, .world_size = 4},
          .local_world_size = 2};
}

TEST(ExamineMeeting, AHeldPortIsRankZerosProblem) {
  const Findings findings = examine_meeting(fake_environment({}), place("alpha"), sources());
  ASSERT_EQ(findings.size(), 2);
  EXPECT_EQ(findings[0].state, State::kOk);
  EXPECT_EQ(findings[1].state, State::kProblem);
  EXPECT_EQ(findings[1].text, "MASTER_PORT 29511 is held by process 4123 (python3 train.py)");
  EXPECT_THAT(examine_meeting(fake_environment({}), place("alpha", 1), sources()),
              ElementsAre(Field(&Finding::state, State::kOk)));
  Place served = place("alpha");
  served.launch_info->uses_agent_store = true;
  EXPECT_THAT(examine_meeting(fake_environment({}), served, sources()),
              ElementsAre(Field(&Finding::state, State::kOk)));
}

TEST(ExamineMeeting, APlaceThatNobodyKnowsIsAProblem) {
  const Findings findings = examine_meeting(fake_environment({}), place("gamma", 1), sources());
  ASSERT_EQ(findings.size(), 1);
  EXPECT_EQ(findings[0].state, State::kProblem);
  EXPECT_THAT(findings[0].text, HasSubstr("the meeting place gamma: nobody knows gamma"));
}

TEST(ExamineMeeting, RankZeroShouldBeWhereTheRanksMeet) {
  const Findings findings = examine_meeting(fake_environment({}), place("beta"), sources());
  EXPECT_EQ(findings.at(0).state, State::kWarning);
  EXPECT_THAT(findings[0].text, HasSubstr("beta (10.0.0.2) is no address of this machine"));
  EXPECT_EQ(examine_meeting(fake_environment({}), place("beta", 1), sources()).at(0).state,
            State::kOk);
}

TEST(ExamineMeeting, LoopbackIsNoPlaceForSeveralNodes) {
  const auto environment = fake_environment({{"LOCAL_WORLD_SIZE", "2"}});
  const Findings findings = examine_meeting(environment, place("localhost", 1), sources());
  ASSERT_EQ(findings.size(), 1);
  EXPECT_EQ(findings[0].state, State::kProblem);
  EXPECT_THAT(findings[0].text, HasSubstr("of 4 ranks only 2"));
  EXPECT_EQ(examine_meeting(
                fake_environment({{"LOCAL_WORLD_SIZE", "4"}}), place("localhost", 1), sources())
                .at(0)
                .state,
            State::kOk);
}

TEST(ExamineMeeting, LoopbackIsAPlaceOnlyWhereTheMachineHasIt) {
  MeetingSources machine = sources();
  std::vector<net::Address>& loopback = machine.interfaces.at(0).addresses;
  machine.resolve = [](const std::string& host) {
    return host == "localhost" ? std::vector{address("::1"), address("127.0.0.1")}
                               : std::vector{address(host)};
  };
  const auto finding_of = [&](const std::string& host, int rank) {
    return examine_meeting(fake_environment({{"MASTER_ADDR", host}}), place(host, rank), machine)
        .at(0);
  };
  EXPECT_EQ(finding_of("127.0.1.1", 0).state, State::kOk);
  loopback = {address("::1")};
  for (const int rank : {0, 1}) {
    EXPECT_EQ(finding_of("::1", rank).state, State::kOk);
    EXPECT_EQ(finding_of("localhost", rank).state, State::kOk) << "one of them will do";
    const Finding missing = finding_of("127.0.0.1", rank);
    EXPECT_EQ(missing.state, State::kProblem);
    EXPECT_THAT(missing.text,
                HasSubstr("MASTER_ADDR=127.0.0.1 (127.0.0.1) is loopback, and no interface of this "
                          "machine has it: lo (::1), eth0"));
    EXPECT_EQ(missing.advice, "set MASTER_ADDR=::1 on every rank");
  }
  loopback.clear();
  EXPECT_THAT(finding_of("localhost", 1).advice, HasSubstr("ip link set lo up"));
}

// What is wrong with rank or world size is said elsewhere.
TEST(ExamineMeeting, AddressAndPortAreExaminedWhoeverThisRankIs) {
  const auto of_unknown_rank = [](const std::string& master_addr) {
    Place unsound = place(master_addr, -1);
    unsound.is_sound = false;
    unsound.launch_info->world_size = 1;
    return unsound;
  };
  const Findings unknown =
      examine_meeting(fake_environment({}), of_unknown_rank("gamma"), sources());
  ASSERT_EQ(unknown.size(), 2);
  EXPECT_EQ(unknown[0].state, State::kProblem);
  EXPECT_EQ(unknown[1].state, State::kWarning);
  EXPECT_EQ(unknown[1].text, "MASTER_PORT 29511 is held by process 4123 (python3 train.py)");
  EXPECT_THAT(examine_meeting(fake_environment({}), of_unknown_rank("alpha"), sources()),
              ElementsAre(Field(&Finding::state, State::kOk), unknown[1]));
  EXPECT_THAT(examine_meeting(fake_environment({}), of_unknown_rank("beta"), sources()),
              ElementsAre(Field(&Finding::state, State::kOk)))
      << "the port of another machine";
  EXPECT_THAT(examine_meeting(fake_environment({}), of_unknown_rank(""), sources()),
              ElementsAre(unknown[1]));
  Place without_port = of_unknown_rank("alpha");
  without_port.launch_info->master_port = 0;
  EXPECT_THAT(examine_meeting(fake_environment({}), without_port, sources()),
              ElementsAre(Field(&Finding::state, State::kOk)));
}

TEST(ExamineMeeting, WithoutAJobThePortOfOneToComeIsExamined) {
  EXPECT_THAT(examine_meeting(fake_environment({}), {}, sources()),
              ElementsAre(Field(&Finding::state, State::kOk)));
  const Findings held =
      examine_meeting(fake_environment({{"MASTER_PORT", "29511"}}), {}, sources());
  EXPECT_EQ(held.at(0).state, State::kProblem);
  EXPECT_THAT(held[0].text, HasSubstr("process 4123"));
  const Findings wrong =
      examine_meeting(fake_environment({{"MASTER_PORT", "port"}}), {}, sources());
  EXPECT_EQ(wrong.at(0).state, State::kProblem);

  MeetingSources all_held = sources();
  all_held.look_at_port = [](std::uint16_t) { return PortState{.is_free = false}; };
  EXPECT_EQ(examine_meeting(fake_environment({}), {}, all_held).at(0).state, State::kWarning);
}

TEST(ExamineMeeting, ARealPortIsFreeUntilSomebodyListens) {
  for (const char* const ip : {"127.0.0.1", "::1"}) {
    Fd listener;
    try {
      listener = net::listen_tcp(address(ip));
    } catch (const Error&) {
      continue;  // This machine's loopback lacks it.
    }
    const std::uint16_t port = net::local_address(listener.get()).port();
    const PortState held = look_at_port(port);
    EXPECT_FALSE(held.is_free) << ip;
    EXPECT_THAT(held.holder, HasSubstr("process " + std::to_string(::getpid())));
    listener.reset();
    EXPECT_TRUE(look_at_port(port).is_free) << ip;
  }
}

TEST(ExamineSecret, SaysWhereItIsFromAndNothingOfIt) {
  Config config;
  config.secret = "0123456789abcdef0123";
  const Finding finding = examine_secret(config, place("alpha"));
  EXPECT_EQ(finding.state, State::kOk);
  EXPECT_EQ(finding.text, "from UNISONO_SECRET");
  config.secret = "guess";
  const Finding weak = examine_secret(config, place("alpha"));
  EXPECT_EQ(weak.state, State::kWarning);
  EXPECT_THAT(weak.text + weak.advice, Not(HasSubstr("guess ")));
}

TEST(ExamineSecret, IsMissedWhereOthersCouldConnect) {
  EXPECT_EQ(examine_secret({}, {}).state, State::kInfo);
  EXPECT_EQ(examine_secret({}, place("127.0.0.1")).state, State::kInfo);
  const Finding missing = examine_secret({}, place("10.0.0.1"));
  EXPECT_EQ(missing.state, State::kProblem);
  EXPECT_THAT(missing.advice, HasSubstr("unisono secret FILE")) << "there is no home";
  Config config;
  config.home = "/nothing/at/home";
  EXPECT_EQ(examine_secret(config, place("10.0.0.1")).advice, "type, on one node: unisono secret");
}

TEST(ExamineSecret, IsMissedWhereTlsNeedsItsKey) {
  Config config;
  config.tls = true;
  EXPECT_EQ(examine_secret(config, {}).state, State::kWarning) << "unisono run would make one";
  const Finding missing = examine_secret(config, place("127.0.0.1"));
  EXPECT_EQ(missing.state, State::kProblem);
  EXPECT_THAT(missing.text, HasSubstr("UNISONO_TLS=on"));
  EXPECT_THAT(missing.advice, HasSubstr("UNISONO_SECRET_FILE"));
  config.secret = "0123456789abcdef0123";
  EXPECT_EQ(examine_secret(config, place("127.0.0.1")).state, State::kOk);
}

TEST(ExamineSecret, ComesFromTheKeySpaceUnlessItIsGiven) {
  const auto on_nodes = [](const std::string& address,
                           const rendezvous::KeyValueSpaceAccess& space) {
    return Place{
        .is_in_job = true,
        .launch_info = rendezvous::LaunchInfo{.master_addr = address, .key_value_space = space}};
  };
  const Place nodes = on_nodes("", {.kind = rendezvous::KeyValueSpaceKind::kPmix});
  const Finding told = examine_secret({}, nodes);
  EXPECT_EQ(told.state, State::kOk);
  EXPECT_THAT(told.text, HasSubstr("from the launcher's key space (PMIx)"));
  EXPECT_THAT(examine_meeting(fake_environment({}), nodes, sources()), IsEmpty());
  Config config;
  config.secret = "0123456789abcdef0123";
  EXPECT_EQ(examine_secret(config, nodes).text, "from UNISONO_SECRET");
  const Place none = on_nodes("10.0.0.1", {.problem = "srun --mpi=pmix has one"});
  EXPECT_THAT(examine_secret({}, none).text, HasSubstr("srun --mpi=pmix has one"));
}

TEST(ExamineSecret, AFileMustBePrivate) {
  const test::TemporaryFolder folder;
  Config config;
  config.secret_file = folder.write("secret", "0123456789abcdef0123\n", 0600);
  const Finding good = examine_secret(config, place("10.0.0.1"));
  EXPECT_EQ(good.state, State::kOk);
  EXPECT_THAT(good.text, HasSubstr("UNISONO_SECRET_FILE=" + config.secret_file));
  EXPECT_THAT(good.text, Not(HasSubstr("0123456789")));
  config.secret_file = folder.write("open", "0123456789abcdef0123\n", 0644);
  const Finding open = examine_secret(config, place("10.0.0.1"));
  EXPECT_EQ(open.state, State::kProblem);
  EXPECT_THAT(open.text, HasSubstr("mode 0644"));
  EXPECT_THAT(open.advice, Not(IsEmpty()));
  config.secret_file.clear();
  config.home = folder.path();
  (void)folder.write(".unisono/secret", "0123456789abcdef0123\n", 0600);
  EXPECT_EQ(examine_secret(config, place("10.0.0.1")).text,
            "from " + folder.path() + "/.unisono/secret");
  config.secret_file = folder.path() + "/none";
  EXPECT_EQ(examine_secret(config, {}).state, State::kProblem);
}

}  // namespace
}  // namespace unisono::cli::doctor
