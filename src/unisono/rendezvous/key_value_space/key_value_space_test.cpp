#include "unisono/rendezvous/key_value_space/key_value_space.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/log.h"
#include "unisono/rendezvous/testing/ranks.h"

#include "support/throws_error.h"

namespace unisono::rendezvous {
namespace {

using std::chrono::milliseconds;
using test::throws_error;
using ::testing::ElementsAre;
using ::testing::Not;

const std::string kInit = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
const std::string kMaxes = "cmd=maxes kvsname_max=256 keylen_max=16 vallen_max=32\n";
const std::string kName = "cmd=my_kvsname kvsname=kvs_7_0\n";
const std::string kGreeting = kInit + kMaxes + kName;

/// The launcher's side: answers each line with the next of `answers`, and closes the connection
/// after the last answer.
class FakeLauncher {
 public:
  explicit FakeLauncher(std::vector<std::string> answers, bool hangs_up = true) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    rank_ = Fd(ends[0]);
    own_ = Fd(ends[1]);
    thread_ = std::jthread([this, hangs_up, answers = std::move(answers)] {
      for (const std::string& answer : answers) {
        const std::string line = read_line();
        if (line.empty()) {
          return;
        }
        heard_.push_back(line);
        (void)::send(own_.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
      }
      if (hangs_up) {
        (void)::shutdown(own_.get(), SHUT_RDWR);
      }
    });
  }

  // The thread detects the end of the connection and is joined.
  ~FakeLauncher() { (void)::shutdown(rank_.get(), SHUT_RDWR); }

  FakeLauncher(const FakeLauncher&) = delete;
  FakeLauncher& operator=(const FakeLauncher&) = delete;
  FakeLauncher(FakeLauncher&&) = delete;
  FakeLauncher& operator=(FakeLauncher&&) = delete;

  [[nodiscard]] int fd() const { return rank_.get(); }

  /// Returns the requests until the rank closed the connection.
  std::vector<std::string> heard() {
    (void)::shutdown(rank_.get(), SHUT_RDWR);
    thread_.join();
    return heard_;
  }

 private:
  std::string read_line() {
    std::string line;
    char letter = 0;
    while (::recv(own_.get(), &letter, 1, 0) == 1 && letter != '\n') {
      line += letter;
    }
    return line;
  }

  Fd rank_;
  Fd own_;
  std::vector<std::string> heard_;
  std::jthread thread_;
};

auto beginning(const std::vector<std::string>& answers, bool hangs_up = true) {
  return [=] {
    const FakeLauncher launcher(answers, hangs_up);
    (void)open_pmi(launcher.fd(), MpiState::kNone, Deadline::after(milliseconds(300)));
  };
}

TEST(PmiKeyValueSpace, AsksAsTheProtocolHasIt) {
  FakeLauncher launcher({kInit,
                         kMaxes,
                         kName,
                         "cmd=put_result rc=0 msg=success\n",
                         "cmd=barrier_out\n",
                         "cmd=get_result rc=0 msg=success value=a/b/c\n",
                         "cmd=finalize_ack\n"});
  const auto space = open_pmi(launcher.fd(), MpiState::kNone, soon());
  space->put("key", "a/b/c", soon());
  EXPECT_TRUE(space->fence(soon()));
  EXPECT_EQ(space->get("key", soon()), "a/b/c");
  space->leave();
  EXPECT_THAT(launcher.heard(),
              ElementsAre("cmd=init pmi_version=1 pmi_subversion=1",
                          "cmd=get_maxes",
                          "cmd=get_my_kvsname",
                          "cmd=put kvsname=kvs_7_0 key=key value=a/b/c",
                          "cmd=barrier_in",
                          "cmd=get kvsname=kvs_7_0 key=key",
                          "cmd=finalize"));
}

TEST(PmiKeyValueSpace, LeavesTheConnectionToAnMpi) {
  FakeLauncher running({kMaxes, kName}, false);
  open_pmi(running.fd(), MpiState::kRunning, soon())->leave();
  EXPECT_THAT(running.heard(), ElementsAre("cmd=get_maxes", "cmd=get_my_kvsname"));
  FakeLauncher finished({}, false);
  EXPECT_THAT([&] { (void)open_pmi(finished.fd(), MpiState::kFinished, soon()); },
              throws_error(ErrorCode::kNotFound, "MPI_Finalize"));
}

TEST(PmiKeyValueSpace, WhatIsNoConnectionIsNotAskedAnything) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const Fd read_end(ends[0]);
  const Fd write_end(ends[1]);
  for (const int fd : {-1, 1'000'000, write_end.get()}) {
    EXPECT_THAT([&] { (void)open_pmi(fd, MpiState::kNone, soon()); },
                throws_error(ErrorCode::kNotFound, "PMI_FD=" + std::to_string(fd)));
  }
}

TEST(PmiKeyValueSpace, ALauncherThatHasGoneIsAnError) {
  EXPECT_THAT(beginning({}), throws_error(ErrorCode::kPeerLost, "the launcher at PMI_FD"));
  EXPECT_THAT(beginning({kInit, "cmd=maxes kvsname_m"}),
              throws_error(ErrorCode::kPeerLost, "closed the connection"));
}

TEST(PmiKeyValueSpace, AnAnswerThatMakesNoSenseIsAnError) {
  for (const std::string& junk : {std::string("junk\n"),
                                  std::string("\n"),
                                  std::string("cmd\n"),
                                  std::string("=x cmd=response_to_init\n"),
                                  std::string("cmd=response_to_init cmd=response_to_init\n"),
                                  std::string("cmd=maxes rc=0\n"),
                                  kInit + "cmd=more\n",
                                  std::string(10'000, 'x')}) {
    EXPECT_THAT(beginning({junk}), throws_error(ErrorCode::kCorruptData, "launcher"))
        << junk.substr(0, 80);
  }
  for (const char* limits : {"", " keylen_max=16", " keylen_max=x vallen_max=32"}) {
    const std::string maxes = std::string("cmd=maxes") + limits + "\n";
    EXPECT_THAT(beginning({kInit, maxes, kName}), throws_error(ErrorCode::kCorruptData, "launcher"))
        << limits;
  }
  EXPECT_THAT(beginning({kInit, kMaxes, "cmd=my_kvsname\n"}),
              throws_error(ErrorCode::kCorruptData, "launcher"));
}

TEST(PmiKeyValueSpace, ARefusalIsAnErrorWithTheLaunchersWords) {
  EXPECT_THAT(beginning({"cmd=response_to_init rc=-1 msg=version_mismatch\n"}),
              throws_error(ErrorCode::kSystem, "rc=-1 version_mismatch"));
  FakeLauncher launcher({kInit, kMaxes, kName, "cmd=get_result rc=-1 msg=key_k_not_found\n"});
  const auto space = open_pmi(launcher.fd(), MpiState::kNone, soon());
  EXPECT_THAT([&] { (void)space->get("k", soon()); },
              throws_error(ErrorCode::kSystem, "key_k_not_found"));
}

TEST(PmiKeyValueSpace, NoAnswerIsATimeout) {
  EXPECT_THAT(beginning({""}, false), throws_error(ErrorCode::kTimeout, "the launcher at PMI_FD"));
}

TEST(PmiKeyValueSpace, AnAnswerMayComeInPartsAndLate) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const Fd rank(ends[0]);
  const Fd own(ends[1]);
  const std::jthread launcher([&] {
    for (const std::string* answer : {&kInit, &kMaxes, &kName}) {
      std::array<char, 256> line{};
      (void)::recv(own.get(), line.data(), line.size(), 0);
      for (const char letter : *answer) {
        (void)::send(own.get(), &letter, 1, MSG_NOSIGNAL);
        std::this_thread::yield();
      }
    }
  });
  const auto space = open_pmi(rank.get(), MpiState::kNone, soon());
}

TEST(PmiKeyValueSpace, AFenceGoesOnAfterATimeout) {
  FakeLauncher launcher({kInit, kMaxes, kName, "", "cmd=get_result rc=0 value=x\n"}, false);
  const auto space = open_pmi(launcher.fd(), MpiState::kNone, soon());
  EXPECT_FALSE(space->fence(Deadline::after(milliseconds(20))));
  EXPECT_FALSE(space->fence(Deadline::after(milliseconds(20))));
  EXPECT_THAT(launcher.heard(),
              ElementsAre("cmd=init pmi_version=1 pmi_subversion=1",
                          "cmd=get_maxes",
                          "cmd=get_my_kvsname",
                          "cmd=barrier_in"));
}

TEST(PmiKeyValueSpace, TooMuchIsRefusedAndNotShown) {
  FakeLauncher launcher({kInit, kMaxes, kName}, false);
  const auto space = open_pmi(launcher.fd(), MpiState::kNone, soon());
  const std::string secret(32, 's');
  const auto put = [&] { space->put("key", secret, soon()); };
  EXPECT_THAT(put, throws_error(ErrorCode::kSystem, "more than the launcher takes, 31 and 15"));
  EXPECT_THAT(put, Not(throws_error(ErrorCode::kSystem, secret)));
  EXPECT_THAT([&] { space->put(std::string(16, 'k'), "x", soon()); },
              throws_error(ErrorCode::kSystem, "more than the launcher takes"));
}

using std::chrono::seconds;
using ::testing::HasSubstr;

const MasterRecord kNote{.secret = "5ec2e7", .address = "10.0.0.1", .port = 61001};

/// A key space in which the other ranks arrive at the fence with this number.
class FakeKeyValueSpace : public KeyValueSpace {
 public:
  explicit FakeKeyValueSpace(std::string text, int n_fences = 1)
      : text_(std::move(text)), n_fences_(n_fences) {}

  void put(const std::string& /*key*/, const std::string& text, Deadline /*deadline*/) override {
    text_ = text;
  }

  bool fence(Deadline deadline) override {
    --n_fences_;
    while (n_fences_ > 0 && !deadline.has_passed()) {
    }
    return n_fences_ <= 0;
  }

  std::string get(const std::string& /*key*/, Deadline /*deadline*/) override { return text_; }

  void leave() noexcept override {}

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
  int n_fences_;
};

LaunchInfo rank(int number) {
  return {.master_addr = "",
          .master_port = 0,
          .rank = number,
          .world_size = 4,
          .key_value_space = {.kind = KeyValueSpaceKind::kPmix}};
}

LaunchInfo rank_with_place(int number) {
  LaunchInfo launch_info = rank(number);
  launch_info.master_addr = "alpha";
  launch_info.master_port = 29500;
  return launch_info;
}

base::Config config_with(const std::string& secret) {
  base::Config config;
  config.secret = secret;
  return config;
}

MasterRecord exchange(KeyValueSpace& space,
                      const LaunchInfo& launch_info,
                      milliseconds timeout = seconds(30)) {
  base::Config config;
  config.stall = milliseconds(10);
  config.log_level = LogLevel::kError;
  return exchange_record(space, launch_info, kNote, config, Deadline::after(timeout));
}

TEST(Agree, IsNeededWhereSomethingIsMissingOnSeveralNodes) {
  EXPECT_TRUE(needs_key_value_space({}, rank(1)));
  EXPECT_TRUE(needs_key_value_space(config_with("given"), rank(1)));
  EXPECT_TRUE(needs_key_value_space({}, rank_with_place(1)));
  EXPECT_FALSE(needs_key_value_space(config_with("given"), rank_with_place(1)));
  base::Config file;
  file.secret_file = "/run/secret";
  EXPECT_FALSE(needs_key_value_space(file, rank_with_place(1)));
  LaunchInfo elsewhere = rank_with_place(1);
  elsewhere.key_value_space = {};
  EXPECT_FALSE(needs_key_value_space({}, elsewhere));
  EXPECT_EQ(publish_master_address({}, elsewhere, Deadline::never()).secret, "");
}

TEST(Agree, RankZeroTellsTheOthers) {
  FakeKeyValueSpace first("");
  EXPECT_EQ(exchange(first, rank(0)), kNote);
  FakeKeyValueSpace other(first.text(), 4);
  EXPECT_EQ(exchange(other, rank(3)), kNote);
}

TEST(Agree, RanksThatDoNotComeAreAnErrorThatSaysWhy) {
  FakeKeyValueSpace space("", 1'000'000'000);
  EXPECT_THAT([&] { (void)exchange(space, rank(3), milliseconds(50)); },
              throws_error(ErrorCode::kTimeout,
                           "launcher's key space (PMIx)",
                           "UNISONO_SECRET and MASTER_ADDR: set them for all ranks"));
}

TEST(MasterRecord, IsReadAsItWasWritten) {
  for (const MasterRecord& note :
       {MasterRecord{.secret = "00ff", .address = "10.0.0.1", .port = 61000},
        MasterRecord{.secret = "00ff"},
        MasterRecord{.address = "fd77::1", .port = 1},
        MasterRecord{}}) {
    EXPECT_EQ(decode_record(encode_record(note)), note) << encode_record(note);
  }
  EXPECT_EQ(encode_record({.secret = "00ff", .address = "10.0.0.1", .port = 61000}),
            "unisono1/00ff/10.0.0.1/61000");
}

TEST(Agree, AnotherTextIsRefusedAndNotShown) {
  for (const char* text : {"",
                           "unisono1",
                           "unisono1/00ff/10.0.0.1",
                           "unisono2/5ec2e7/10.0.0.1/61000",
                           "unisono1/00FF/10.0.0.1/61000",
                           "unisono1/secret/10.0.0.1/61000",
                           "unisono1/00ff/10.0.0.1/",
                           "unisono1/00ff/10.0.0.1/0",
                           "unisono1/00ff//61000",
                           "unisono1/00ff/10.0.0.1/65536",
                           "unisono1/00ff/10.0.0.1/-1",
                           "unisono1/00ff/10.0.0.1/61000/"}) {
    FakeKeyValueSpace space(text);
    const auto get = [&] { (void)exchange(space, rank(3)); };
    EXPECT_THAT(get, throws_error(ErrorCode::kIncompatible, "not for this release")) << text;
    EXPECT_THAT(get, Not(throws_error(ErrorCode::kIncompatible, "5ec2e7")));
  }
}

TEST(Agree, ANoteFillsInWhatIsMissing) {
  const LaunchInfo all = apply_record({}, rank(1), kNote);
  EXPECT_EQ(all.secret, "5ec2e7");
  EXPECT_EQ(all.master_addr, "10.0.0.1");
  EXPECT_EQ(all.master_port, 61001);
  const LaunchInfo secret = apply_record({}, rank_with_place(1), {.secret = "5ec2e7"});
  EXPECT_EQ(secret.secret, "5ec2e7");
  EXPECT_EQ(secret.master_addr, "alpha");
  EXPECT_EQ(secret.master_port, 29500);
  const LaunchInfo place =
      apply_record(config_with("given"), rank(1), {.address = "10.0.0.1", .port = 61001});
  EXPECT_EQ(place.secret, "");
  EXPECT_EQ(place.master_addr, "10.0.0.1");
}

TEST(Agree, RanksThatWereToldDifferentThingsFail) {
  const auto applying =
      [](const base::Config& config, const LaunchInfo& own, const MasterRecord& note) {
        return [=] { (void)apply_record(config, own, note); };
      };
  constexpr ErrorCode kCode = ErrorCode::kInvalidArgument;
  EXPECT_THAT(applying({}, rank_with_place(2), {}),
              throws_error(kCode, "rank 2 has no UNISONO_SECRET", "rank 0 has one"));
  const auto given = applying(config_with("given"), rank_with_place(2), {.secret = "5ec2e7"});
  EXPECT_THAT(given,
              throws_error(kCode, "rank 2 has been given UNISONO_SECRET", "rank 0 has none"));
  EXPECT_THAT(given, Not(throws_error(kCode, "5ec2e7")));
  EXPECT_THAT(applying({}, rank(2), {.secret = "5ec2e7"}),
              throws_error(kCode, "has no MASTER_ADDR"));
  EXPECT_THAT(applying({}, rank_with_place(2), kNote),
              throws_error(kCode, "been given MASTER_ADDR"));
}

// The only test that queries the key space of this process, because the answer is cached.
TEST(Agree, WithoutALauncherTheReasonIsKept) {
  LaunchInfo own = rank_with_place(1);
  own.key_value_space = {.kind = KeyValueSpaceKind::kPmi, .pmi_fd = 1'000'000};
  base::Config config;
  config.log_level = LogLevel::kError;
  for (int group = 0; group < 2; ++group) {
    const LaunchInfo result = publish_master_address(config, own, Deadline::after(seconds(30)));
    EXPECT_EQ(result.secret, "");
    EXPECT_THAT(result.key_value_space.problem,
                HasSubstr("PMI_FD=1000000 is not an open connection"));
  }
  LaunchInfo without_place = own;
  without_place.master_addr.clear();
  EXPECT_THAT(
      [&] { (void)publish_master_address(config, without_place, Deadline::after(seconds(30))); },
      throws_error(ErrorCode::kInvalidArgument, "PMI_FD", "Set MASTER_ADDR"));
}

}  // namespace
}  // namespace unisono::rendezvous
