#include "unisono/rendezvous/place_note.h"

#include <string>

#include <gtest/gtest.h>

namespace unisono::rendezvous {
namespace {

TEST(PlaceNote, IsReadAsItWasWritten) {
  for (const PlaceNote& note : {PlaceNote{.secret = "00ff", .address = "10.0.0.1", .port = 61000},
                                PlaceNote{.secret = "00ff"},
                                PlaceNote{.address = "fd77::1", .port = 1},
                                PlaceNote{}}) {
    EXPECT_EQ(decode_note(encode_note(note)), note) << encode_note(note);
  }
  EXPECT_EQ(encode_note({.secret = "00ff", .address = "10.0.0.1", .port = 61000}),
            "unisono1/00ff/10.0.0.1/61000");
}

TEST(PlaceNote, AnotherTextIsNone) {
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
    EXPECT_FALSE(decode_note(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace unisono::rendezvous
