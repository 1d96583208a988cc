#include "unisono/checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

#include "support/throws_error.h"

namespace unisono::checkpoint {
namespace {

using test::throws_error;

Manifest some_manifest() {
  return {.release = "1.2.3",
          .step = 4711,
          .world_size = 2,
          .shards = {{.file = shard_name(0),
                      .sums = {.n_bytes = kBlockBytes + 1, .crc32 = 7, .block_crc32s = {1, 2}}},
                     {.file = shard_name(1),
                      .sums = {.n_bytes = 9, .crc32 = 0xffffffff, .block_crc32s = {3}}}}};
}

auto decoding(const std::string& text) {
  return [text] { (void)decode_manifest(text, "D/manifest.json"); };
}

TEST(Manifests, ComeBackAsTheyWere) {
  const std::string text = encode_manifest(some_manifest());
  EXPECT_EQ(decode_manifest(text, "x"), some_manifest());
  EXPECT_EQ(shard_name(1), "shard-00002-model-00001-of-00001.safetensors");
}

TEST(Manifests, EveryFlippedBitIsFoundOrOfNoConsequence) {
  const std::string text = encode_manifest(some_manifest());
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = text;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      try {
        EXPECT_EQ(decode_manifest(damaged, "x"), some_manifest()) << damaged;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kCorruptData) << error.what();
      }
    }
  }
}

TEST(Manifests, WhatNoWriterMakesIsRefused) {
  EXPECT_THAT(decoding("{}"),
              throws_error(ErrorCode::kCorruptData, "D/manifest.json", "has no \"manifest\""));
  const auto refuses = [](auto change, const std::string& expected) {
    Manifest manifest = some_manifest();
    change(manifest);
    EXPECT_THAT(decoding(encode_manifest(manifest)),
                throws_error(ErrorCode::kCorruptData, "D/manifest.json", expected));
  };
  refuses([](Manifest& manifest) { manifest.shards.clear(); }, "must be a list of files");
  refuses([](Manifest& manifest) { manifest.shards[1].file = "../x.safetensors"; },
          "can't be the name of a shard");
  refuses([](Manifest& manifest) { manifest.shards[1].file = "x"; }, "can't be the name");
  refuses([](Manifest& manifest) { manifest.shards[1].file = manifest.shards[0].file; },
          "or is that of two");
  refuses([](Manifest& manifest) { manifest.shards[0].sums.n_bytes -= 1; }, "a number for each");
  refuses([](Manifest& manifest) { manifest.step = -1; }, "\"step\" must be a whole number");
}

TEST(Manifests, DeepNestingIsRefusedBeforeItIsFollowed) {
  const auto nested = [](std::size_t depth) {
    return R"({"crc32":"0","manifest":)" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  EXPECT_THAT(decoding(nested(1'000'000)),
              throws_error(ErrorCode::kCorruptData, "D/manifest.json", "nested", "16"));
  EXPECT_THAT(decoding(nested(16)), throws_error(ErrorCode::kCorruptData, "nested"));
  EXPECT_THAT(decoding(nested(15)), throws_error(ErrorCode::kCorruptData, "check sum"));
}

TEST(Manifests, ALaterVersionSaysSo) {
  // The manifest has the correct checksum of the later release.
  EXPECT_THAT(decoding(R"({"crc32":"5a1dc9f0","manifest":{"version":2}})"),
              throws_error(ErrorCode::kIncompatible, "version 2", "reads version 1"));
}

}  // namespace
}  // namespace unisono::checkpoint
