#include "unisono/rendezvous/key_value_space/publish_master_address.h"

#include <chrono>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/rendezvous/key_value_space/key_value_space.h"
#include "unisono/rendezvous/launch_info.h"

#include "support/throws_error.h"

namespace unisono::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::throws_error;
using ::testing::HasSubstr;
using ::testing::Not;

const MasterRecord kNote{.secret = "5ec2e7", .address = "10.0.0.1", .port = 61001};

/// One that the others come to at the fence of that number.
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

Config config_with(const std::string& secret) {
  Config config;
  config.secret = secret;
  return config;
}

MasterRecord exchange(KeyValueSpace& space,
                      const LaunchInfo& launch_info,
                      milliseconds timeout = seconds(30)) {
  Config config;
  config.stall = milliseconds(10);
  config.log_level = LogLevel::kError;
  return exchange_record(space, launch_info, kNote, config, Deadline::after(timeout));
}

TEST(Agree, IsNeededWhereSomethingIsMissingOnSeveralNodes) {
  EXPECT_TRUE(needs_key_value_space({}, rank(1)));
  EXPECT_TRUE(needs_key_value_space(config_with("given"), rank(1)));
  EXPECT_TRUE(needs_key_value_space({}, rank_with_place(1)));
  EXPECT_FALSE(needs_key_value_space(config_with("given"), rank_with_place(1)));
  Config file;
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
                           "UNISONO_SECRET and MASTER_ADDR: tell them to all ranks"));
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
  const auto applying = [](const Config& config, const LaunchInfo& own, const MasterRecord& note) {
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

// The only test that asks the key space of this process: the answer is kept.
TEST(Agree, WithoutALauncherTheReasonIsKept) {
  LaunchInfo own = rank_with_place(1);
  own.key_value_space = {.kind = KeyValueSpaceKind::kPmi, .pmi_fd = 1'000'000};
  Config config;
  config.log_level = LogLevel::kError;
  for (int group = 0; group < 2; ++group) {
    const LaunchInfo result = publish_master_address(config, own, Deadline::after(seconds(30)));
    EXPECT_EQ(result.secret, "");
    EXPECT_THAT(result.key_value_space.problem, HasSubstr("PMI_FD=1000000 is no open connection"));
  }
  LaunchInfo without_place = own;
  without_place.master_addr.clear();
  EXPECT_THAT(
      [&] { (void)publish_master_address(config, without_place, Deadline::after(seconds(30))); },
      throws_error(ErrorCode::kInvalidArgument, "PMI_FD", "Set MASTER_ADDR"));
}

}  // namespace
}  // namespace unisono::rendezvous
