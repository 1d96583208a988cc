#include "unisono/base/left_behind.h"

#include <string>

#include <gtest/gtest.h>

#include "unisono/base/log.h"

namespace unisono {
namespace {

TEST(IsLeftBehind, NamesOfSystemsAndToolsAtAnyDepth) {
  for (const std::string name : {".DS_Store",
                                 "._x.png",
                                 ".ipynb_checkpoints",
                                 ".git",
                                 "__MACOSX",
                                 "@eaDir",
                                 "$RECYCLE.BIN",
                                 "$Recycle.Bin",
                                 "System Volume Information",
                                 "lost+found",
                                 "Thumbs.db",
                                 "thumbs.DB",
                                 "desktop.ini",
                                 "Icon\r",
                                 "__pycache__"}) {
    EXPECT_TRUE(is_left_behind(name)) << name;
    EXPECT_TRUE(is_left_behind("cat/" + name)) << name;
    EXPECT_TRUE(is_left_behind("./" + name + "/1.png")) << name;
  }
}

TEST(IsLeftBehind, NotNamesThatDataMayHave) {
  for (const std::string name : {"",
                                 ".",
                                 "..",
                                 "./cat/1.png",
                                 "../cat/1.png",
                                 "cat//1.png",
                                 "x._y",
                                 "a.git",
                                 "Icon",
                                 "thumbs.db.png",
                                 "lost",
                                 "_",
                                 "@home",
                                 "#1",
                                 "$"}) {
    EXPECT_FALSE(is_left_behind(name)) << name;
  }
}

std::string line_of(const LeftOut& left_out) {
  ::testing::internal::CaptureStderr();
  left_out.report(Logger("data"), "data folder \"flowers\"");
  return ::testing::internal::GetCapturedStderr();
}

TEST(LeftOut, OneLineCountsBothKinds) {
  LeftOut left_out;
  EXPECT_EQ(line_of(left_out), "");
  left_out.add("notes.txt");
  EXPECT_EQ(line_of(left_out),
            "[unisono data] data folder \"flowers\": entries left out: 1 of other types "
            "(notes.txt)\n");
  for (const std::string name : {"Icon\r", ".git", "cat/._1.png", "cat/.DS_Store"}) {
    left_out.add(name);
  }
  EXPECT_EQ(line_of(left_out),
            "[unisono data] data folder \"flowers\": entries left out: 4 of systems and tools "
            "(Icon\\r, .git, cat/._1.png, ...), 1 of other types (notes.txt)\n");
}

}  // namespace
}  // namespace unisono
