#include "unisono/base/placeholder.h"

#include <span>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

namespace unisono {
namespace {

using ::testing::HasSubstr;

std::string complaint(const std::string& content) {
  try {
    check_no_placeholder("sets/train.tar", std::as_bytes(std::span(content)));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
    return error.what();
  }
  return "";
}

TEST(Placeholder, PointersAreNamedWithTheCommandThatFetchesTheFile) {
  EXPECT_EQ(complaint("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"),
            "sets/train.tar: is a pointer of Git LFS in place of the file; fetch the file in its "
            "repository: git lfs pull --include \"train.tar\"");
  EXPECT_THAT(complaint("/annex/objects/SHA256E-s12--ab.tar\n"),
              HasSubstr("git annex get \"train.tar\""));
}

TEST(Placeholder, PagesAreNamed) {
  for (const std::string page : {"<!DOCTYPE html>\n<title>Sign in</title>",
                                 "\xEF\xBB\xBF\r\n  <!doctype HTML>",
                                 "<HTML lang=\"en\">",
                                 "<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code>"}) {
    EXPECT_THAT(complaint(page), HasSubstr("sets/train.tar: is a web page")) << page;
  }
  EXPECT_THAT(complaint("<html>\n<h1>403</h1>"), HasSubstr("\"<html>\\n<h1>403</h1>\""));
}

TEST(Placeholder, DataPass) {
  for (const std::string data :
       {"", "<", "<br />A film", "<htm", "version 2\n", "0\t<html>", "\x89PNG", "/annex"}) {
    EXPECT_EQ(complaint(data), "") << data;
  }
}

}  // namespace
}  // namespace unisono
