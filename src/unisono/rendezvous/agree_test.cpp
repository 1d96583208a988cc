#include "unisono/rendezvous/agree.h"

#include <chrono>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/rendezvous/assignment.h"
#include "unisono/rendezvous/key_space.h"
#include "unisono/rendezvous/key_space_access.h"
#include "unisono/rendezvous/place_note.h"

namespace unisono::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const PlaceNote kNote{.secret = "5ec2e7", .address = "10.0.0.1", .port = 61001};

/// One that the others come to at the fence of that number.
class FakeKeySpace : public KeySpace {
 public:
  explicit FakeKeySpace(std::string text, int n_fences = 1)
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

Assignment rank(int number) {
  return {.master_addr = "",
          .master_port = 0,
          .rank = number,
          .world_size = 4,
          .key_space = {.kind = KeySpaceKind::kPmix}};
}

Assignment rank_with_place(int number) {
  Assignment assignment = rank(number);
  assignment.master_addr = "alpha";
  assignment.master_port = 29500;
  return assignment;
}

Config config_with(const std::string& secret) {
  Config config;
  config.secret = secret;
  return config;
}

PlaceNote exchange(KeySpace& space,
                   const Assignment& assignment,
                   milliseconds timeout = seconds(30)) {
  return exchange_note(space,
                       assignment,
                       kNote,
                       {.stall = milliseconds(10), .logger = Logger("test", LogLevel::kError)},
                       Deadline::after(timeout));
}

template <class Call>
Error error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return {ErrorCode::kInternal, "no error"};
}

TEST(Agree, IsNeededWhereSomethingIsMissingOnSeveralNodes) {
  EXPECT_TRUE(needs_key_space({}, rank(1)));
  EXPECT_TRUE(needs_key_space(config_with("given"), rank(1)));
  EXPECT_TRUE(needs_key_space({}, rank_with_place(1)));
  EXPECT_FALSE(needs_key_space(config_with("given"), rank_with_place(1)));
  Config file;
  file.secret_file = "/run/secret";
  EXPECT_FALSE(needs_key_space(file, rank_with_place(1)));
  Assignment elsewhere = rank_with_place(1);
  elsewhere.key_space = {};
  EXPECT_FALSE(needs_key_space({}, elsewhere));
  EXPECT_EQ(agree({}, elsewhere, Deadline::never()).secret, "");
}

TEST(Agree, RankZeroTellsTheOthers) {
  FakeKeySpace first("");
  EXPECT_EQ(exchange(first, rank(0)), kNote);
  FakeKeySpace other(first.text(), 4);
  EXPECT_EQ(exchange(other, rank(3)), kNote);
}

TEST(Agree, RanksThatDoNotComeAreAnErrorThatSaysWhy) {
  FakeKeySpace space("", 1'000'000'000);
  const Error error = error_of([&] { (void)exchange(space, rank(3), milliseconds(50)); });
  EXPECT_EQ(error.code(), ErrorCode::kTimeout);
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("launcher's key space (PMIx)"),
                    HasSubstr("UNISONO_SECRET and MASTER_ADDR: tell them to all ranks")));
}

TEST(Agree, AnotherReleasesNoteIsRefusedAndNotShown) {
  FakeKeySpace space("unisono2/5ec2e7/10.0.0.1/61001");
  const Error error = error_of([&] { (void)exchange(space, rank(3)); });
  EXPECT_EQ(error.code(), ErrorCode::kIncompatible);
  EXPECT_THAT(error.what(), Not(HasSubstr("5ec2e7")));
}

TEST(Agree, ANoteFillsInWhatIsMissing) {
  const Assignment all = apply_note({}, rank(1), kNote);
  EXPECT_EQ(all.secret, "5ec2e7");
  EXPECT_EQ(all.master_addr, "10.0.0.1");
  EXPECT_EQ(all.master_port, 61001);
  const Assignment secret = apply_note({}, rank_with_place(1), {.secret = "5ec2e7"});
  EXPECT_EQ(secret.secret, "5ec2e7");
  EXPECT_EQ(secret.master_addr, "alpha");
  EXPECT_EQ(secret.master_port, 29500);
  const Assignment place =
      apply_note(config_with("given"), rank(1), {.address = "10.0.0.1", .port = 61001});
  EXPECT_EQ(place.secret, "");
  EXPECT_EQ(place.master_addr, "10.0.0.1");
}

TEST(Agree, RanksThatWereToldDifferentThingsFail) {
  const auto message = [](const Config& config, const Assignment& own, const PlaceNote& note) {
    const Error error = error_of([&] { (void)apply_note(config, own, note); });
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return std::string(error.what());
  };
  EXPECT_THAT(message({}, rank_with_place(2), {}),
              AllOf(HasSubstr("rank 2 has no UNISONO_SECRET"), HasSubstr("rank 0 has one")));
  EXPECT_THAT(message(config_with("given"), rank_with_place(2), {.secret = "5ec2e7"}),
              AllOf(HasSubstr("rank 2 has been given UNISONO_SECRET"),
                    HasSubstr("rank 0 has none"),
                    Not(HasSubstr("5ec2e7"))));
  EXPECT_THAT(message({}, rank(2), {.secret = "5ec2e7"}), HasSubstr("has no MASTER_ADDR"));
  EXPECT_THAT(message({}, rank_with_place(2), kNote), HasSubstr("been given MASTER_ADDR"));
}

// The only test that asks the key space of this process: the answer is kept.
TEST(Agree, WithoutALauncherTheReasonIsKept) {
  Assignment own = rank_with_place(1);
  own.key_space = {.kind = KeySpaceKind::kPmi, .pmi_fd = 1'000'000};
  Config config;
  config.log_level = LogLevel::kError;
  for (int group = 0; group < 2; ++group) {
    const Assignment result = agree(config, own, Deadline::after(seconds(30)));
    EXPECT_EQ(result.secret, "");
    EXPECT_THAT(result.key_space.problem, HasSubstr("PMI_FD=1000000 is no open connection"));
  }
  Assignment without_place = own;
  without_place.master_addr.clear();
  const Error error =
      error_of([&] { (void)agree(config, without_place, Deadline::after(seconds(30))); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("PMI_FD"), HasSubstr("Set MASTER_ADDR")));
}

}  // namespace
}  // namespace unisono::rendezvous
