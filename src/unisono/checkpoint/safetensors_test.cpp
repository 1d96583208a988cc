#include "unisono/checkpoint/safetensors.h"

#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/checkpoint/checked_file.h"

#include "support/temporary_folder.h"
#include "support/throws_error.h"

namespace unisono::checkpoint {
namespace {

using test::throws_error;

std::string header_bytes(const std::string& json) {
  std::string bytes(8, '\0');
  const std::uint64_t n_bytes = json.size();
  std::memcpy(bytes.data(), &n_bytes, 8);
  return bytes + json;
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string numbered_bytes(std::size_t n_bytes) {
  std::string bytes(n_bytes, '\0');
  for (std::size_t i = 0; i < n_bytes; ++i) {
    bytes[i] = static_cast<char>(i * 7 % 251);
  }
  return bytes;
}

class Safetensors : public ::testing::Test {
 protected:
  [[nodiscard]] std::string path() const { return folder_.path() + "/model.safetensors"; }

  auto opening(const std::string& bytes) {
    (void)folder_.write("model.safetensors", bytes);
    return [this] { (void)SafetensorsFile(path()); };
  }

  [[nodiscard]] std::string read_all(SafetensorsFile& file, std::size_t index) const {
    std::string bytes(file.header().tensors[index].n_bytes, '\0');
    file.read(index, 0, std::as_writable_bytes(std::span(bytes)));
    return bytes;
  }

  test::TemporaryFolder folder_;
};

TEST_F(Safetensors, TensorsComeBackAlignedAndWithMetadata) {
  const std::string flags = numbered_bytes(3);
  const std::string weights = numbered_bytes(24);
  const std::string step = numbered_bytes(8);
  const std::vector<TensorBytes> tensors{
      {.info = {.name = "flags", .dtype = DType::kBool, .shape = {3}}, .bytes = bytes_of(flags)},
      {.info = {.name = "w\"\n", .dtype = DType::kFloat32, .shape = {2, 3}},
       .bytes = bytes_of(weights)},
      {.info = {.name = "none", .dtype = DType::kBFloat16, .shape = {0, 5}}, .bytes = {}},
      {.info = {.name = "step", .dtype = DType::kInt64, .shape = {}}, .bytes = bytes_of(step)}};
  const FileSums sums = write_safetensors(path(), tensors, {{"format", "pt"}});
  EXPECT_THAT(folder_.names(), ::testing::ElementsAre("model.safetensors"));
  EXPECT_EQ(sums.n_bytes, std::filesystem::file_size(path()));
  SafetensorsFile file(path(), sums);
  EXPECT_EQ(file.header().metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
  std::map<std::string, std::string> read;
  for (std::size_t i = 0; i < file.header().tensors.size(); ++i) {
    const StoredTensor& stored = file.header().tensors[i];
    EXPECT_EQ(stored.offset % static_cast<unsigned>(stored.info.dtype.n_bits() / 8), 0U)
        << stored.info.name;
    read[stored.info.name] = read_all(file, i);
    for (const TensorBytes& tensor : tensors) {
      if (tensor.info.name == stored.info.name) {
        EXPECT_EQ(tensor.info, stored.info);
      }
    }
  }
  EXPECT_EQ(read,
            (std::map<std::string, std::string>{
                {"flags", flags}, {"w\"\n", weights}, {"none", ""}, {"step", step}}));
  EXPECT_THAT([&] { file.read(0, 8, std::as_writable_bytes(std::span(read["step"]))); },
              throws_error(ErrorCode::kInvalidArgument, "step", "8 from 8 on"));
}

TEST_F(Safetensors, TensorsOfEveryTypeComeBack) {
  std::vector<std::string> contents;
  std::vector<TensorBytes> tensors;
  // Enough elements of each width to fill whole bytes.
  for (const std::string_view name : ElementType::names()) {
    const ElementType type = ElementType::named(name).value();
    EXPECT_EQ(type.name(), name);
    contents.push_back(numbered_bytes(static_cast<std::size_t>(type.n_bits())));
    tensors.push_back(
        {.info = {.name = std::string(name), .dtype = type, .shape = {2, 4}}, .bytes = {}});
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].bytes = bytes_of(contents[i]);
  }
  ASSERT_EQ(tensors.size(), 22U);
  write_safetensors(path(), tensors);
  SafetensorsFile file(path());
  ASSERT_EQ(file.header().tensors.size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& info = file.header().tensors[i].info;
    const auto written = std::find_if(
        tensors.begin(), tensors.end(), [&](const auto& tensor) { return tensor.info == info; });
    ASSERT_NE(written, tensors.end()) << info.name;
    EXPECT_EQ(read_all(file, i), contents[static_cast<std::size_t>(written - tensors.begin())])
        << info.name;
  }
}

struct BadHeader {
  const char* json;
  const char* expected;
};

class BadHeaders : public Safetensors, public ::testing::WithParamInterface<BadHeader> {};

TEST_P(BadHeaders, AreRefusedByFileTensorAndExpectation) {
  EXPECT_THAT(opening(header_bytes(GetParam().json) + std::string(8, 'x')),
              throws_error(ErrorCode::kCorruptData, path(), GetParam().expected));
}

INSTANTIATE_TEST_SUITE_P(
    Safetensors,
    BadHeaders,
    ::testing::Values(
        BadHeader{"{", "is not JSON"},
        BadHeader{"[]", "a JSON array, not an object"},
        BadHeader{"{\"\xff\":1}", "is not JSON"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},
                      "a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                  R"(has "a" twice)"},
        BadHeader{R"({"a":{"dtype":"U8","dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
                  R"(has "dtype" twice)"},
        BadHeader{R"({"a":{"shape":[8],"data_offsets":[0,8]}})", R"(tensor "a" has no "dtype")"},
        BadHeader{R"({"a":7})", R"(tensor "a" has no "dtype")"},
        BadHeader{R"({"a":{"dtype":"F5","shape":[8],"data_offsets":[0,8]}})",
                  R"(tensor "a" has dtype "F5"; those that can be read are BOOL, F4, F6_E2M3,)"},
        BadHeader{R"({"a":{"dtype":"F6_E3M2","shape":[11],"data_offsets":[0,8]}})",
                  R"(tensor "a" is f6_e3m2[11], which is not the 8 bytes)"},
        BadHeader{R"({"a":{"dtype":"","shape":[8],"data_offsets":[0,8]}})", "has dtype \"\""},
        BadHeader{R"({"a":{"dtype":8,"shape":[8],"data_offsets":[0,8]}})", "is not a string"},
        BadHeader{R"({"a":{"dtype":"U8","shape":8,"data_offsets":[0,8]}})", "not a list"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[-8],"data_offsets":[0,8]}})",
                  R"(each number of "shape" must be a whole number)"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[8.0],"data_offsets":[0,8]}})",
                  R"(each number of "shape" must be a whole number)"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,8]}})",
                  R"(each number of "shape" must be a whole number)"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})",
                  R"(tensor "a" is f32[3], which is not the 8 bytes of its data_offsets 0 to 8)"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})",
                  "which is not the 0 bytes"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[8,0]}})",
                  "must be a begin and an end"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,4,8]}})",
                  "must be a begin and an end"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},
                      "b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                  R"(tensor "b" begins at offset)"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},
                      "b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                  "after the end of the data before it"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[7],"data_offsets":[0,7]}})", "has extra bytes"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})", "is truncated"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8],"x":1}})",
                  "has other members"},
        BadHeader{R"({"":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
                  "a tensor has no name"},
        BadHeader{R"({"__metadata__":[]})", R"("__metadata__" is a JSON array)"},
        BadHeader{R"({"__metadata__":{"a":1}})", R"("a" in "__metadata__" is not a string)"}));

TEST_F(Safetensors, FilesThatEndInTheHeaderAreTruncated) {
  EXPECT_THAT(opening(""), throws_error(ErrorCode::kCorruptData, path(), "0 bytes are too few"));
  EXPECT_THAT(opening(header_bytes("{}").substr(0, 9)),
              throws_error(ErrorCode::kCorruptData, "of a header of 2 bytes, 1 are present"));
  EXPECT_THAT(opening(std::string(16, '\x7f')),
              throws_error(ErrorCode::kCorruptData, "exceeds the limit of 100000000"));
  EXPECT_THAT(opening("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"),
              throws_error(ErrorCode::kCorruptData, path(), "git lfs pull --include"));
  EXPECT_THAT(opening("<!DOCTYPE html>"), throws_error(ErrorCode::kCorruptData, "a web page"));
  EXPECT_THAT([&] { (void)SafetensorsFile(folder_.path()); },
              throws_error(ErrorCode::kInvalidArgument, "is a folder"));
  EXPECT_THAT([&] { (void)SafetensorsFile(path() + "x"); },
              throws_error(ErrorCode::kNotFound, path() + "x"));
}

TEST_F(Safetensors, WhatCantBeReadBackIsNotWritten) {
  const std::string bytes = numbered_bytes(16);
  const auto writing = [&](const std::vector<TensorInfo>& infos) {
    return [&, infos] {
      std::vector<TensorBytes> tensors;
      for (const TensorInfo& info : infos) {
        tensors.push_back({.info = info, .bytes = bytes_of(bytes)});
      }
      write_safetensors(path(), tensors);
    };
  };
  const TensorInfo good{.name = "a", .dtype = DType::kUInt8, .shape = {16}};
  const auto refuses = [&](const TensorInfo& info, const std::string& why) {
    EXPECT_THAT(writing({good, info}), throws_error(ErrorCode::kInvalidArgument, path(), why));
  };
  refuses(good, "tensor \"a\": two tensors have this name");
  refuses({.name = "", .dtype = DType::kUInt8, .shape = {16}}, "no tensor may have this name");
  refuses({.name = "__metadata__", .dtype = DType::kUInt8, .shape = {16}}, "no tensor may have");
  refuses({.name = "\xff", .dtype = DType::kUInt8, .shape = {16}}, "not valid UTF-8");
  refuses({.name = "b", .dtype = DType::kComplex128, .shape = {1}}, "can't hold c128");
  refuses({.name = "b", .dtype = DType::kUInt8, .shape = {-16}}, "is invalid");
  refuses({.name = "b", .dtype = ElementType::named("F4").value(), .shape = {31}},
          "f4[31] is invalid, or its elements do not fill whole bytes");
  refuses({.name = "b", .dtype = DType::kFloat32, .shape = {3}},
          "16 bytes are not those of f32[3]");
  EXPECT_THAT(folder_.names(), ::testing::IsEmpty());
}

TEST_F(Safetensors, AFullDiskLeavesTheOlderFile) {
  const std::string bytes = numbered_bytes(1 << 16);
  const std::vector<TensorBytes> tensors{
      {.info = {.name = "a", .dtype = DType::kUInt8, .shape = {1 << 16}},
       .bytes = bytes_of(bytes)}};
  write_safetensors(path(), tensors);
  const std::string before = test::read_file(path());
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit{};
  ::getrlimit(RLIMIT_FSIZE, &old_limit);
  const rlimit limit{4096, old_limit.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &limit);
  EXPECT_THAT([&] { write_safetensors(path(), tensors); },
              throws_error(ErrorCode::kSystem, path(), "File too large"));
  ::setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(test::read_file(path()), before);
  EXPECT_THAT(folder_.names(), ::testing::ElementsAre("model.safetensors"));
}

// Each part is checked only with the blocks that contain the part.
TEST_F(Safetensors, AFlippedBitIsFoundByWhoReadsItsBlock) {
  const std::string bytes = numbered_bytes(3 * kBlockBytes);
  const std::vector<TensorBytes> tensors{
      {.info = {.name = "a", .dtype = DType::kUInt8, .shape = {3 << 20}},
       .bytes = bytes_of(bytes)}};
  const FileSums sums = write_safetensors(path(), tensors);
  ASSERT_EQ(sums.block_crc32s.size(), 4U);
  std::string damaged = test::read_file(path());
  EXPECT_EQ(sums.crc32, crc32_of(bytes_of(damaged)));
  damaged[kBlockBytes * 5 / 2] ^= 1;
  (void)folder_.write("model.safetensors", damaged);

  SafetensorsFile file(path(), sums);
  std::string part(10, '\0');
  const auto reading = [&](std::uint64_t offset) {
    return [&, offset] { file.read(0, offset, std::as_writable_bytes(std::span(part))); };
  };
  reading(kBlockBytes / 2)();
  EXPECT_EQ(part, bytes.substr(kBlockBytes / 2, 10));
  EXPECT_THAT(reading(kBlockBytes * 9 / 4),
              throws_error(ErrorCode::kCorruptData, path(), "2097152 to 3145728", "damaged"));
  // A second read fails too: data of a failed read is not cached.
  EXPECT_THAT(reading(kBlockBytes * 9 / 4), throws_error(ErrorCode::kCorruptData, "damaged"));
  EXPECT_THAT([&] { CheckedFile(path(), sums).verify(); },
              throws_error(ErrorCode::kCorruptData, "damaged"));
  SafetensorsFile unchecked(path());
  EXPECT_NE(read_all(unchecked, 0), bytes);

  std::filesystem::resize_file(path(), damaged.size() - 1);
  EXPECT_THAT([&] { (void)SafetensorsFile(path(), sums); },
              throws_error(ErrorCode::kCorruptData, path(), "truncated or replaced"));
  EXPECT_THAT(reading(bytes.size() - 10), throws_error(ErrorCode::kCorruptData, path(), "ends at"));
}

TEST_F(Safetensors, PartsAreReadBlockByBlock) {
  const std::string bytes = numbered_bytes(4 * kBlockBytes);
  const std::vector<TensorBytes> tensors{
      {.info = {.name = "a", .dtype = DType::kUInt8, .shape = {4 << 20}},
       .bytes = bytes_of(bytes)}};
  const FileSums sums = write_safetensors(path(), tensors);
  SafetensorsFile file(path(), sums);
  const std::uint64_t n_before = file.n_read();
  std::string part(kBlockBytes, '\0');
  file.read(0, kBlockBytes + 5, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, bytes.substr(kBlockBytes + 5, kBlockBytes));
  EXPECT_LE(file.n_read() - n_before, 2 * kBlockBytes);
}

}  // namespace
}  // namespace unisono::checkpoint
