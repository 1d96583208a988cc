#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/rendezvous/key_value_space/key_value_space.h"
#include "unisono/rendezvous/launchers/mpi_implementation.h"
#include "unisono/rendezvous/testing/two_rank_job.h"

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

/// The launcher's side: answers each line with the next of `answers`, and hangs up behind the last.
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

  // The thread sees the end, and is joined.
  ~FakeLauncher() { (void)::shutdown(rank_.get(), SHUT_RDWR); }

  FakeLauncher(const FakeLauncher&) = delete;
  FakeLauncher& operator=(const FakeLauncher&) = delete;
  FakeLauncher(FakeLauncher&&) = delete;
  FakeLauncher& operator=(FakeLauncher&&) = delete;

  [[nodiscard]] int fd() const { return rank_.get(); }

  /// What was asked until the rank hung up.
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

}  // namespace
}  // namespace unisono::rendezvous
