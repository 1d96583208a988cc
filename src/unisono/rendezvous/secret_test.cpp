#include "unisono/rendezvous/secret.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/config.h"
#include "unisono/base/error.h"

#include "support/temporary_folder.h"

namespace unisono::rendezvous {
namespace {

using ::testing::HasSubstr;

class SecretFile : public ::testing::Test {
 protected:
  [[nodiscard]] Config config_with(const std::string& contents, unsigned mode) const {
    Config config;
    config.secret_file = folder_.write("secret", contents, mode);
    return config;
  }

  static std::string message_of(const Config& config, ErrorCode code) {
    try {
      (void)find_secret(config, "10.0.0.1");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      return error.what();
    }
    return "no error";
  }

  test::TemporaryFolder folder_;
};

TEST_F(SecretFile, APrivateFileIsReadWithoutItsLastNewline) {
  EXPECT_EQ(find_secret(config_with("from a file\n", 0600), "10.0.0.1"), "from a file");
  EXPECT_EQ(find_secret(config_with(" spaces stay ", 0400), "10.0.0.1"), " spaces stay ");
}

TEST_F(SecretFile, TheVariableComesBeforeTheFile) {
  Config config = config_with("from a file", 0644);
  config.secret = "from the variable";
  EXPECT_EQ(find_secret(config, "10.0.0.1"), "from the variable");
}

TEST_F(SecretFile, AFileThatOthersCanReadIsRefused) {
  for (const unsigned mode : {0644U, 0640U, 0660U, 0604U, 0610U}) {
    const std::string message = message_of(config_with("s", mode), ErrorCode::kInvalidArgument);
    EXPECT_THAT(message, HasSubstr("UNISONO_SECRET_FILE=\"" + folder_.path()));
    EXPECT_THAT(message, HasSubstr("has mode 06"));
    EXPECT_THAT(message, HasSubstr("chmod 600"));
  }
}

TEST_F(SecretFile, WhatIsNoFileOrHoldsNothingIsExplained) {
  Config config;
  config.secret_file = folder_.path() + "/missing";
  EXPECT_THAT(message_of(config, ErrorCode::kNotFound), HasSubstr("No such file"));
  config.secret_file = folder_.path();
  EXPECT_THAT(message_of(config, ErrorCode::kInvalidArgument), HasSubstr("is not a file"));
  EXPECT_THAT(message_of(config_with("\n", 0600), ErrorCode::kInvalidArgument),
              HasSubstr("is empty"));
  EXPECT_THAT(message_of(config_with(std::string(5000, 'x'), 0600), ErrorCode::kInvalidArgument),
              HasSubstr("more than 4096 bytes"));
}

TEST(Secret, NoneIsNeededOnLoopbackOnly) {
  for (const char* host : {"127.0.0.1", "::1", "localhost"}) {
    EXPECT_EQ(find_secret(Config{}, host), "") << host;
  }
  for (const char* host : {"10.0.0.1", "0.0.0.0", "no-such-host.invalid"}) {
    try {
      (void)find_secret(Config{}, host);
      FAIL() << host;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr(std::string("MASTER_ADDR=\"") + host));
      EXPECT_THAT(error.what(), HasSubstr("UNISONO_SECRET"));
    }
  }
}

}  // namespace
}  // namespace unisono::rendezvous
