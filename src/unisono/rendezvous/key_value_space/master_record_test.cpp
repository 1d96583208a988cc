#include "unisono/rendezvous/key_value_space/master_record.h"

#include <string>

#include <gtest/gtest.h>

namespace unisono::rendezvous {
namespace {

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

TEST(MasterRecord, AnotherTextIsNone) {
  for (const char* text : {"",
                           "unisono1",
                           "unisono1/00ff/10.0.0.1",
                           "unisono2/00ff/10.0.0.1/61000",
                           "unisono1/00FF/10.0.0.1/61000",
                           "unisono1/secret/10.0.0.1/61000",
                           "unisono1/00ff/10.0.0.1/",
                           "unisono1/00ff/10.0.0.1/0",
                           "unisono1/00ff//61000",
                           "unisono1/00ff/10.0.0.1/65536",
                           "unisono1/00ff/10.0.0.1/-1",
                           "unisono1/00ff/10.0.0.1/61000/"}) {
    EXPECT_FALSE(decode_record(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace unisono::rendezvous
