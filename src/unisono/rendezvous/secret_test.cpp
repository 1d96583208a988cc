#include "unisono/rendezvous/secret.h"

#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/rendezvous/launch_info.h"

#include "support/temporary_folder.h"
#include "support/throws_error.h"

namespace unisono::rendezvous {
namespace {

using test::throws_error;
using ::testing::Not;

auto finding(const base::Config& config) {
  return [config] { (void)find_secret(config, "10.0.0.1"); };
}

class SecretFile : public ::testing::Test {
 protected:
  [[nodiscard]] base::Config config_with(const std::string& contents, unsigned mode) const {
    base::Config config;
    config.secret_file = folder_.write("secret", contents, mode);
    return config;
  }

  test::TemporaryFolder folder_;
};

TEST_F(SecretFile, APrivateFileIsReadWithoutMarkAndLastNewline) {
  EXPECT_EQ(find_secret(config_with("from a file\n", 0600), "10.0.0.1"), "from a file");
  EXPECT_EQ(find_secret(config_with(" spaces stay ", 0400), "10.0.0.1"), " spaces stay ");
  EXPECT_EQ(find_secret(config_with("\ufefffrom a file\r\n", 0600), "10.0.0.1"), "from a file");
}

TEST_F(SecretFile, TheVariableComesBeforeTheFile) {
  base::Config config = config_with("from a file", 0644);
  config.secret = "from the variable";
  EXPECT_EQ(find_secret(config, "10.0.0.1"), "from the variable");
}

TEST_F(SecretFile, TheOneInTheHomeFolderIsTheLast) {
  base::Config config;
  config.home = folder_.path();
  EXPECT_EQ(find_secret(config, "127.0.0.1"), "");
  EXPECT_THAT(finding(config), throws_error(ErrorCode::kInvalidArgument, "~/.unisono/secret"));
  (void)folder_.write(".unisono/secret", "at home\n", 0600);
  EXPECT_EQ(find_secret(config, "10.0.0.1"), "at home");
  EXPECT_EQ(find_secret(config, "127.0.0.1"), "at home");
  config.secret_file = folder_.write("named", "named", 0600);
  EXPECT_EQ(find_secret(config, "10.0.0.1"), "named");
  config.secret_file.clear();
  (void)folder_.write(".unisono/other", "x", 0600);
  (void)folder_.write(".unisono/secret", "at home", 0644);
  EXPECT_THAT(finding(config), throws_error(ErrorCode::kInvalidArgument, "has mode 0"));
}

TEST_F(SecretFile, WhatRankZeroToldComesBeforeTheHomeFolder) {
  base::Config config;
  config.home = folder_.path();
  (void)folder_.write(".unisono/secret", "at home\n", 0600);
  const LaunchInfo told{.master_addr = "10.0.0.1", .secret = "told"};
  EXPECT_EQ(find_secret(config, told), "told");
  config.secret_file = folder_.write("named", "named", 0600);
  EXPECT_EQ(find_secret(config, told), "named");
  config.secret = "given";
  EXPECT_EQ(find_secret(config, told), "given");
  const LaunchInfo untold{.master_addr = "10.0.0.1", .key_value_space = {.problem = "no PMI here"}};
  EXPECT_THAT([&] { (void)find_secret({}, untold); },
              throws_error(ErrorCode::kInvalidArgument,
                           "unisono secret FILE",
                           "UNISONO_SECRET_FILE=FILE",
                           "; no PMI here"));
}

TEST_F(SecretFile, AFileThatOthersCanReadIsRefused) {
  for (const unsigned mode : {0644U, 0640U, 0660U, 0604U, 0610U}) {
    EXPECT_THAT(finding(config_with("s", mode)),
                throws_error(ErrorCode::kInvalidArgument,
                             "the file \"" + folder_.path(),
                             "has mode 06",
                             "chmod 600"));
  }
}

// Switches the effective user during the object's lifetime.
class OtherUser {
 public:
  OtherUser() { EXPECT_EQ(::setegid(kNobody) + ::seteuid(kNobody), 0); }

  ~OtherUser() { EXPECT_EQ(::seteuid(0) + ::setegid(0), 0); }

  OtherUser(const OtherUser&) = delete;
  OtherUser& operator=(const OtherUser&) = delete;
  OtherUser(OtherUser&&) = delete;
  OtherUser& operator=(OtherUser&&) = delete;

  static constexpr uid_t kNobody = 65534;
};

TEST_F(SecretFile, OneOfRootsMayBeReadByAGroup) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can give files away";
  }
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
  for (const unsigned mode : {0440U, 0640U, 0444U, 0460U}) {
    const base::Config config = config_with("mounted", mode);
    ASSERT_EQ(::chown(config.secret_file.c_str(), 0, OtherUser::kNobody), 0);
    const OtherUser user;
    if (mode == 0440 || mode == 0640) {
      EXPECT_EQ(find_secret(config, "10.0.0.1"), "mounted");
    } else {
      EXPECT_THAT(finding(config), throws_error(ErrorCode::kInvalidArgument, "chmod 440"));
    }
  }
  const base::Config config = config_with("another's", 0600);
  ASSERT_EQ(::chown(config.secret_file.c_str(), 12345, 12345), 0);
  EXPECT_THAT(finding(config), throws_error(ErrorCode::kInvalidArgument, "belongs to user 12345"));
}

TEST_F(SecretFile, WhatIsNoFileOrHoldsNothingIsExplained) {
  base::Config config;
  config.secret_file = folder_.path() + "/missing";
  EXPECT_THAT(finding(config),
              throws_error(ErrorCode::kNotFound, "of UNISONO_SECRET_FILE does not exist"));
  config.secret_file = folder_.path();
  EXPECT_THAT(finding(config), throws_error(ErrorCode::kInvalidArgument, "is not a file"));
  EXPECT_THAT(finding(config_with("\n", 0600)),
              throws_error(ErrorCode::kInvalidArgument, "is empty"));
  EXPECT_THAT(finding(config_with(std::string(5000, 'x'), 0600)),
              throws_error(ErrorCode::kInvalidArgument, "more than 4096 bytes"));
}

TEST_F(SecretFile, IsWrittenForThisUserAlone) {
  base::Config config;
  config.secret_file = folder_.path() + "/new";
  write_secret(config.secret_file);
  struct stat status{};
  ASSERT_EQ(::stat(config.secret_file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600U);
  const std::string secret = find_secret(config, "10.0.0.1");
  EXPECT_EQ(secret.size(), 64U);
  EXPECT_THAT([&] { write_secret(config.secret_file); },
              throws_error(ErrorCode::kInvalidArgument, config.secret_file, "exists"));
  EXPECT_EQ(find_secret(config, "10.0.0.1"), secret);
  write_secret(folder_.path() + "/other");
  config.secret_file = folder_.path() + "/other";
  EXPECT_NE(find_secret(config, "10.0.0.1"), secret);
  EXPECT_THAT([&] { write_secret(folder_.path() + "/no/folder"); },
              throws_error(ErrorCode::kSystem, "no/folder"));
}

TEST(Secret, TheCommandThatWritesItIsNamed) {
  base::Config config;
  config.home = "/nothing/at/home";
  EXPECT_THAT(
      [&] { (void)find_secret(config, "10.0.0.1"); },
      throws_error(
          ErrorCode::kInvalidArgument, "type \"unisono secret\"", "scp -rp ~/.unisono NODE:"));
}

TEST(Secret, AnAddressWhereNoMachineCanBeIsRefusedWithoutAWordOfSecrets) {
  for (const char* host : {"::1:29574", "fe80::1", "256.1.1.1", "[::1", "a/b"}) {
    const auto find = [&] { (void)find_secret(base::Config{}, host); };
    EXPECT_THAT(find, throws_error(ErrorCode::kInvalidArgument, host, "is not a valid host"));
    EXPECT_THAT(find, Not(throws_error(ErrorCode::kInvalidArgument, "secret"))) << host;
  }
}

TEST(Secret, NoneIsNeededOnLoopbackOnly) {
  for (const char* host : {"127.0.0.1", "::1", "[::1]", "localhost"}) {
    EXPECT_EQ(find_secret(base::Config{}, host), "") << host;
  }
  for (const char* host : {"10.0.0.1", "0.0.0.0"}) {
    EXPECT_THAT([&] { (void)find_secret(base::Config{}, host); },
                throws_error(ErrorCode::kInvalidArgument,
                             std::string("\"") + host + "\" can be reached",
                             "UNISONO_SECRET"));
  }
  EXPECT_THAT([] { (void)find_secret(base::Config{}, LaunchInfo{.master_addr = "10.0.0.1"}); },
              throws_error(ErrorCode::kInvalidArgument, "MASTER_ADDR=\"10.0.0.1\" can be reached"));
}

TEST(Secret, ANameThatNobodyKnowsIsSaidToBeThat) {
  const auto find = [] { (void)find_secret(base::Config{}, "no-such-host.invalid"); };
  EXPECT_THAT(find,
              throws_error(ErrorCode::kInvalidArgument,
                           "\"no-such-host.invalid\" does not resolve",
                           "host \"no-such-host.invalid\" has no address: "));
  EXPECT_THAT(find, Not(throws_error(ErrorCode::kInvalidArgument, "can be reached")));
}

}  // namespace
}  // namespace unisono::rendezvous
