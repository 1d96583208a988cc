#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/cli/doctor/checks.h"
#include "unisono/net/socket.h"

#include "support/ranks.h"
#include "support/temporary_folder.h"

namespace unisono::cli::doctor {
namespace {

using rendezvous::LaunchInfo;
using Variables = std::map<std::string, std::string>;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;

constexpr const char* kSecret = "0123456789abcdef0123";

auto is(State state, const std::string& text = "", const std::string& advice = "") {
  return AllOf(Field(&Finding::state, state),
               Field(&Finding::text, HasSubstr(text)),
               Field(&Finding::advice, HasSubstr(advice)));
}

net::Address address(const std::string& ip) {
  return net::Address::parse(ip, 0).value_or(net::Address::any(AF_INET, 0));
}

// A process with the variables `changes` and with all variables of `base` that `changes` does not
// override.
Machine machine_of(Variables changes, Variables base = {}) {
  changes.merge(base);
  const Environment environment = test::fake_environment(changes);
  return {.environment = environment, .place = find_place(environment)};
}

const Variables kTorchrun{{"RANK", "1"},
                          {"WORLD_SIZE", "4"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "2"},
                          {"MASTER_ADDR", "10.0.0.1"},
                          {"MASTER_PORT", "29511"},
                          {"TORCHELASTIC_RUN_ID", "none"},
                          {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
const Variables kSlurm{{"SLURM_JOB_ID", "17"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_STEP_NODELIST", "n[1-2]"},
                       {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                       {"SLURM_NTASKS", "4"},
                       {"SLURM_PROCID", "2"},
                       {"SLURM_LOCALID", "0"}};

TEST(CheckLauncher, NoLauncherIsNoProblem) {
  const Machine machine = machine_of({});
  EXPECT_FALSE(machine.place.is_in_job);
  EXPECT_FALSE(machine.place.has_peers());
  EXPECT_THAT(check_launcher(machine), ElementsAre(is(kInfo)));
  const Machine script =
      machine_of({{"SLURM_JOB_ID", "17"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}});
  EXPECT_FALSE(script.place.is_in_job);
  EXPECT_THAT(check_launcher(script), ElementsAre(is(kInfo, "the shell of Slurm job 17", "srun")));
}

TEST(CheckLauncher, NamesLauncherRankAndMeetingPlace) {
  const Machine torchrun = machine_of(kTorchrun);
  EXPECT_TRUE(torchrun.place.has_peers());
  EXPECT_EQ(torchrun.place.local_world_size, 2);
  EXPECT_THAT(check_launcher(torchrun),
              ElementsAre(is(kOk,
                             "started by unisono run: rank 1 of 4, local rank 1; the ranks meet "
                             "at 10.0.0.1:29511, which the launcher serves")));
  const Machine slurm = machine_of(kSlurm);
  EXPECT_TRUE(slurm.place.has_peers());
  EXPECT_EQ(slurm.place.local_world_size, 2);
  EXPECT_THAT(check_launcher(slurm),
              ElementsAre(is(kOk, "started by Slurm: rank 2 of 4"),
                          is(kInfo, "", "WORLD_SIZE=4 RANK=2 LOCAL_RANK=0")));
  EXPECT_THAT(check_slurm(slurm), ElementsAre(is(kInfo, "4 tasks on n1, n2")));
  const Machine mpich = machine_of({{"PMI_RANK", "2"},
                                    {"PMI_SIZE", "4"},
                                    {"PMI_FD", "6"},
                                    {"MPI_LOCALRANKID", "0"},
                                    {"MPI_LOCALNRANKS", "2"}});
  EXPECT_EQ(mpich.place.local_world_size, 2);
  EXPECT_THAT(check_launcher(mpich), ElementsAre(is(kOk, "in the launcher's key space (PMI)")));
}

TEST(CheckLauncher, WrongVariablesAreAProblemWithARemedy) {
  const Machine machine = machine_of({{"RANK", "7"}, {"MASTER_PORT", "seven"}}, kTorchrun);
  EXPECT_TRUE(machine.place.is_in_job);
  EXPECT_FALSE(machine.place.has_peers());
  EXPECT_EQ(machine.place.launch_info.master_addr, "10.0.0.1");
  const Findings findings = check_launcher(machine);
  EXPECT_THAT(
      findings,
      ElementsAre(is(kProblem, "RANK=7 is not below WORLD_SIZE=4", "unisono run -n N program")));
  EXPECT_THAT(findings, Contains(is(kProblem, "seven")));
  EXPECT_THAT(check_launcher(machine_of({{"LOCAL_RANK", "2"}}, kTorchrun)),
              Contains(is(kProblem, "LOCAL_RANK=2 is not below LOCAL_WORLD_SIZE=2")));
  EXPECT_THAT(check_launcher(machine_of({{"LOCAL_WORLD_SIZE", "5"}}, kTorchrun)),
              Contains(is(kProblem, "LOCAL_WORLD_SIZE=5 is more than WORLD_SIZE=4")));
}

TEST(CheckLauncher, ListsVariablesWithTheirLauncher) {
  const auto listed = [](const Variables& changes, const Variables& base) {
    return check_launcher_variables(machine_of(changes, base));
  };
  EXPECT_THAT(listed({{"PATH", "/bin"}, {"RANK", "1"}}, {}),
              ElementsAre(is(kInfo, "RANK=1: this process's rank")));
  const Findings ours = listed({{"GROUP_RANK", "0"}, {"SLURM_PROCID", "0"}}, kTorchrun);
  EXPECT_THAT(ours, Contains(info("GROUP_RANK=0: number of the node; set by unisono run")[0]));
  EXPECT_THAT(ours, Contains(info("RANK=1: this process's rank; set by unisono run")[0]));
  EXPECT_THAT(ours, Contains(is(kInfo, "set by srun")));
  EXPECT_THAT(
      listed({{"GROUP_RANK", "0"}, {"TORCHELASTIC_ERROR_FILE", "/tmp/error.json"}}, kTorchrun),
      Contains(info("GROUP_RANK=0: number of the node; set by torchrun")[0]));
}

TEST(PartialLaunchInfo, WrongVariablesHideNoOthers) {
  Variables base = kTorchrun;
  base.erase("LOCAL_WORLD_SIZE");
  const auto read = [&](Variables changes) {
    changes.merge(Variables(base));
    const LaunchInfo found = partial_launch_info(test::fake_environment(changes));
    return fmt::format("{} of {} at {}:{} {}",
                       found.rank,
                       found.world_size,
                       found.master_addr,
                       found.master_port,
                       found.uses_agent_store ? "of the launcher" : "of rank 0");
  };
  const std::string unknown_rank = "-1 of 1 at 10.0.0.1:29511 of the launcher";
  EXPECT_EQ(read({{"RANK", "x"}}), unknown_rank);
  EXPECT_EQ(read({{"WORLD_SIZE", "x"}}), unknown_rank);
  EXPECT_EQ(read({{"RANK", "5"}}), unknown_rank);
  EXPECT_EQ(read({{"RANK", "-1"}, {"LOCAL_RANK", "y"}}), unknown_rank);
  EXPECT_THAT(read({{"MASTER_ADDR", ""}, {"LOCAL_RANK", "y"}}), HasSubstr("1 of 4 at :29511"));
  EXPECT_THAT(read({{"MASTER_PORT", "65536"}, {"WORLD_SIZE", "4x"}}),
              HasSubstr("-1 of 1 at 10.0.0.1:0"));
  EXPECT_THAT(
      read({{"RANK", ""}, {"WORLD_SIZE", ""}, {"MASTER_ADDR", "a b"}, {"MASTER_PORT", "p"}}),
      HasSubstr("-1 of 1 at :0"));
  base = kSlurm;
  EXPECT_THAT(read({{"SLURM_PROCID", "two"}}),
              MatchesRegex("-1 of 1 at n1:6[1-5][0-9]{3} of rank 0"));
}

TEST(CheckSettings, AreShownWithoutTheSecretAndWrongOnesAreNamed) {
  Machine machine = machine_of({{"UNISONO_LOG", "debug"}, {"UNISONO_SECRET", "hush"}});
  machine.setting_names = {"UNISONO_LOG", "UNISONO_SECRET"};
  EXPECT_EQ(check_settings(machine), info("UNISONO_LOG=debug"));
  machine = machine_of({});
  EXPECT_THAT(check_settings(machine), IsEmpty());
  machine.setting_names = {"UNISONO_TIMOUT_SECONDS", "UNISONO_PIZZA"};
  EXPECT_THAT(check_settings(machine),
              ElementsAre(is(kWarning,
                             "UNISONO_TIMOUT_SECONDS is not a setting",
                             "is UNISONO_TIMEOUT_SECONDS meant?"),
                          AllOf(is(kWarning), Field(&Finding::advice, Not(HasSubstr("meant"))))));
  machine = machine_of({{"UNISONO_LOG", "loud"}, {"UNISONO_SECRET", "hush"}, {"HOME", "/house"}});
  EXPECT_THAT(check_settings(machine).at(0), is(kProblem, "UNISONO_LOG=\"loud\""));
  const base::Config config = readable_config(machine.environment);
  EXPECT_EQ(config.home, "/house");
  EXPECT_EQ(config.log_level, LogLevel::kInfo);
  EXPECT_EQ(config.secret, "hush");
}

std::vector<net::Interface> interfaces() {
  return {{.name = "lo",
           .is_up = true,
           .has_carrier = true,
           .is_loopback = true,
           .addresses = {address("127.0.0.1")}},
          {.name = "eth0", .is_up = true, .addresses = {address("10.0.0.1"), address("fd00::1")}},
          {.name = "ib0", .addresses = {address("10.1.0.1")}}};
}

// Rank `rank` of 4 on the machine 10.0.0.1, which resolves the names alpha (itself), beta and
// localhost. Port 29511 is in use.
Machine alpha(const std::string& master_addr, int rank = 0, const Variables& variables = {}) {
  const auto resolve = [](const std::string& host) {
    const Variables known{{"alpha", "10.0.0.1"}, {"beta", "10.0.0.2"}, {"localhost", "127.0.0.1"}};
    if (!known.contains(host)) {
      throw Error(ErrorCode::kNotFound, "unknown host " + host);
    }
    return std::vector{address(known.at(host))};
  };
  const auto probe_port = [](std::uint16_t port) {
    return port == 29511 ? PortState{false, "process 4123 (python3 train.py)"} : PortState();
  };
  Machine machine{.environment = test::fake_environment(variables),
                  .place = {.is_in_job = true, .local_world_size = 2},
                  .interfaces = interfaces(),
                  .resolve = resolve,
                  .probe_port = probe_port};
  machine.place.launch_info = {
      .master_addr = master_addr, .master_port = 29511, .rank = rank, .world_size = 4};
  return machine;
}

TEST(CheckMeetingPlace, MustBeKnownAndRankZeros) {
  EXPECT_THAT(check_meeting_place(alpha("alpha")), ElementsAre(is(kOk)));
  EXPECT_THAT(check_meeting_place(alpha("gamma", 1)),
              ElementsAre(is(kProblem, "the meeting place gamma: unknown host gamma")));
  EXPECT_THAT(check_meeting_place(alpha("beta")),
              ElementsAre(is(kWarning, "beta (10.0.0.2) is not an address of this machine")));
  EXPECT_THAT(check_meeting_place(alpha("beta", 1)), ElementsAre(is(kOk)));
}

TEST(CheckMeetingPlace, LoopbackIsForOneNodeThatHasIt) {
  EXPECT_THAT(check_meeting_place(alpha("localhost", 1, {{"LOCAL_WORLD_SIZE", "2"}})),
              ElementsAre(is(kProblem, "of 4 ranks only 2")));
  EXPECT_THAT(check_meeting_place(alpha("localhost", 1, {{"LOCAL_WORLD_SIZE", "4"}})),
              ElementsAre(is(kOk)));
  std::vector<net::Address> loopback{address("127.0.0.1")};
  const auto found = [&](const std::string& host, int rank) {
    Machine machine = alpha(host, rank, {{"MASTER_ADDR", host}});
    machine.interfaces.at(0).addresses = loopback;
    machine.resolve = [](const std::string& name) {
      return name == "localhost" ? std::vector{address("::1"), address("127.0.0.1")}
                                 : std::vector{address(name)};
    };
    return check_meeting_place(machine).at(0);
  };
  EXPECT_THAT(found("127.0.1.1", 0), is(kOk));
  loopback = {address("::1")};
  for (const int rank : {0, 1}) {
    EXPECT_THAT(found("::1", rank), is(kOk));
    EXPECT_THAT(found("localhost", rank), is(kOk)) << "one of its addresses suffices";
    EXPECT_THAT(found("127.0.0.1", rank),
                is(kProblem,
                   "MASTER_ADDR=127.0.0.1 (127.0.0.1) is loopback, and no interface of this "
                   "machine has it: lo (::1), eth0",
                   "set MASTER_ADDR=::1 on every rank"));
  }
  loopback.clear();
  EXPECT_THAT(found("localhost", 1), is(kProblem, "", "ip link set lo up"));
}

TEST(CheckPort, AHeldPortIsRankZerosProblem) {
  const char* const held = "MASTER_PORT 29511 is held by process 4123 (python3 train.py)";
  EXPECT_THAT(check_port(alpha("alpha")), ElementsAre(is(kProblem, held)));
  EXPECT_THAT(check_port(alpha("alpha", 1)), IsEmpty());
  Machine served = alpha("alpha");
  served.place.launch_info.uses_agent_store = true;
  EXPECT_THAT(check_port(served), IsEmpty());
  EXPECT_THAT(check_meeting_place(served), ElementsAre(is(kOk)));
}

// Other checks report the fault of rank or world size.
TEST(CheckPort, IsExaminedForAnUnknownRank) {
  const auto unknown = [](const std::string& master_addr) {
    Machine machine = alpha(master_addr, -1);
    machine.place.error = "RANK is wrong";
    machine.place.launch_info.world_size = 1;
    return machine;
  };
  const auto held = is(kWarning, "MASTER_PORT 29511 is held by process 4123 (python3 train.py)");
  EXPECT_THAT(check_meeting_place(unknown("gamma")), ElementsAre(is(kProblem)));
  EXPECT_THAT(check_meeting_place(unknown("alpha")), ElementsAre(is(kOk)));
  EXPECT_THAT(check_meeting_place(unknown("beta")), ElementsAre(is(kOk)));
  EXPECT_THAT(check_meeting_place(unknown("")), IsEmpty());
  EXPECT_THAT(check_port(unknown("gamma")), ElementsAre(held));
  EXPECT_THAT(check_port(unknown("alpha")), ElementsAre(held));
  EXPECT_THAT(check_port(unknown("")), ElementsAre(held));
  EXPECT_THAT(check_port(unknown("beta")), IsEmpty()) << "the port of another machine";
  Machine without_port = unknown("alpha");
  without_port.place.launch_info.master_port = 0;
  EXPECT_THAT(check_port(without_port), IsEmpty());
}

TEST(CheckPort, OfALaterJobIsExaminedWithoutAJob) {
  const auto found = [](const Variables& variables) {
    Machine machine = alpha("", 0, variables);
    machine.place = {};
    EXPECT_THAT(check_meeting_place(machine), IsEmpty());
    return machine;
  };
  Machine machine = found({});
  EXPECT_THAT(check_port(machine), ElementsAre(is(kOk)));
  machine.probe_port = [](std::uint16_t) { return PortState{.is_free = false}; };
  EXPECT_THAT(check_port(machine), ElementsAre(is(kWarning)));
  EXPECT_THAT(check_port(found({{"MASTER_PORT", "29511"}})),
              ElementsAre(is(kProblem, "process 4123")));
  EXPECT_THAT(check_port(found({{"MASTER_PORT", "port"}})), ElementsAre(is(kProblem)));
}

TEST(CheckPort, ARealPortIsFreeWithoutAListener) {
  for (const char* const ip : {"127.0.0.1", "::1"}) {
    Fd listener;
    try {
      listener = net::listen_tcp(address(ip));
    } catch (const Error&) {
      continue;  // This machine's loopback interface does not have the address.
    }
    const std::uint16_t port = net::local_address(listener.get()).port();
    const PortState held = probe_port(port);
    EXPECT_FALSE(held.is_free) << ip;
    EXPECT_THAT(held.holder, HasSubstr("process " + std::to_string(::getpid())));
    listener.reset();
    EXPECT_TRUE(probe_port(port).is_free) << ip;
  }
}

TEST(CheckSecret, NamesTheSourceAndNoPartOfTheSecret) {
  Machine machine = alpha("alpha");
  machine.config.secret = kSecret;
  EXPECT_EQ(check_secret(machine), ok("from UNISONO_SECRET"));
  machine.config.secret = "guess";
  const Finding weak = check_secret(machine).at(0);
  EXPECT_EQ(weak.state, kWarning);
  EXPECT_THAT(weak.text + weak.advice, Not(HasSubstr("guess ")));
}

TEST(CheckSecret, IsMissedWhereOthersCouldConnectOrTlsNeedsItsKey) {
  EXPECT_THAT(check_secret(Machine()), ElementsAre(is(kInfo)));
  EXPECT_THAT(check_secret(alpha("127.0.0.1")), ElementsAre(is(kInfo)));
  Machine machine = alpha("10.0.0.1");
  EXPECT_THAT(check_secret(machine), ElementsAre(is(kProblem, "", "unisono secret FILE")));
  machine.config.home = "/nothing/at/home";
  EXPECT_EQ(check_secret(machine).at(0).advice, "type, on one node: unisono secret");
  machine = {};
  machine.config.tls = true;
  EXPECT_THAT(check_secret(machine), ElementsAre(is(kWarning))) << "unisono run would make one";
  machine.place = alpha("127.0.0.1").place;
  EXPECT_THAT(check_secret(machine),
              ElementsAre(is(kProblem, "UNISONO_TLS=on", "UNISONO_SECRET_FILE")));
  machine.config.secret = kSecret;
  EXPECT_THAT(check_secret(machine), ElementsAre(is(kOk)));
}

TEST(CheckSecret, ComesFromTheKeySpaceUnlessItIsGiven) {
  Machine machine = alpha("");
  machine.place.launch_info.key_value_space.kind = rendezvous::KeyValueSpaceKind::kPmix;
  EXPECT_THAT(check_secret(machine), ElementsAre(is(kOk, "from the launcher's key space (PMIx)")));
  EXPECT_THAT(check_meeting_place(machine), IsEmpty());
  EXPECT_THAT(check_port(machine), IsEmpty());
  machine.config.secret = kSecret;
  EXPECT_EQ(check_secret(machine), ok("from UNISONO_SECRET"));
  machine = alpha("10.0.0.1");
  machine.place.launch_info.key_value_space.problem = "srun --mpi=pmix has one";
  EXPECT_THAT(check_secret(machine), ElementsAre(is(kProblem, "srun --mpi=pmix has one")));
}

TEST(CheckSecret, AFileMustBePrivate) {
  const test::TemporaryFolder folder;
  Machine machine = alpha("10.0.0.1");
  std::string& file = machine.config.secret_file;
  file = folder.write("secret", std::string(kSecret) + "\n", 0600);
  EXPECT_EQ(check_secret(machine), ok("from UNISONO_SECRET_FILE=" + file));
  file = folder.write("open", std::string(kSecret) + "\n", 0644);
  EXPECT_THAT(check_secret(machine), ElementsAre(is(kProblem, "mode 0644", "secret")));
  file.clear();
  machine.config.home = folder.path();
  (void)folder.write(".unisono/secret", std::string(kSecret) + "\n", 0600);
  EXPECT_EQ(check_secret(machine), ok("from " + folder.path() + "/.unisono/secret"));
  machine.place = {};
  file = folder.path() + "/none";
  EXPECT_THAT(check_secret(machine), ElementsAre(is(kProblem)));
}

TEST(CheckInterfaces, ListsStateAddressesAndSpeed) {
  const test::TemporaryFolder root;
  (void)root.write("sys/class/net/eth0/mtu", "9000\n");
  (void)root.write("sys/class/net/eth0/speed", "25000\n");
  (void)root.write("sys/class/net/ib0/speed", "-1\n");
  Machine machine = alpha("alpha");
  machine.root = root.path();
  EXPECT_THAT(check_interfaces(machine),
              ElementsAre(info("lo: up, loopback, 127.0.0.1")[0],
                          info("eth0: up, 10.0.0.1, fd00::1, MTU 9000, 25 Gbit/s")[0],
                          info("ib0: down, 10.1.0.1")[0]));
  machine.interfaces[0].is_up = false;
  EXPECT_THAT(check_interfaces(machine).back(), is(kProblem, "loopback", "ip link set lo up"));
}

TEST(CheckData, IsTheWayToTheMeetingPlaceOrTheChosenInterface) {
  Machine machine = alpha("alpha");
  machine.route_source = address("10.0.0.1");
  EXPECT_THAT(check_data(machine),
              ElementsAre(is(kOk, "eth0 (10.0.0.1): the way to alpha, where the ranks meet")));
  machine.config.interface = "eth0";
  EXPECT_THAT(check_data(machine), ElementsAre(is(kOk, "eth0 (10.0.0.1): UNISONO_INTERFACE=eth0")));
  for (const char* const wrong : {"ib0", "eth7", "192.168.0.0/16"}) {
    machine.config.interface = wrong;
    EXPECT_THAT(check_data(machine), ElementsAre(is(kProblem, wrong)));
  }
  machine = {.interfaces = machine.interfaces};
  EXPECT_EQ(check_data(machine), info("no route to other machines"));
  const auto source = find_source("127.0.0.1");
  EXPECT_TRUE(source && source->is_loopback());
}

TEST(CheckData, TheRangeOfPortsMustDoForTheNode) {
  Machine machine = alpha("alpha");
  machine.config.ports = PortRange{.first = 40000, .last = 40001};
  EXPECT_THAT(check_data(machine).at(1), is(kInfo));
  machine.place.local_world_size = 3;
  EXPECT_THAT(check_data(machine).at(1), is(kProblem, "UNISONO_PORTS=40000-40001 has 2 ports"));
}

}  // namespace
}  // namespace unisono::cli::doctor
