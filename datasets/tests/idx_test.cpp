#include "unisono/datasets/idx.h"

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"

#include "support/temporary_folder.h"
#include "support/throws_error.h"
#include "tests/test_files.h"

namespace unisono::datasets {
namespace {

using test::CaughtError;
using test::error_of;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using testing::gzip;
using ::testing::HasSubstr;
using testing::idx_bytes;
using testing::some_bytes;

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <class T>
std::vector<T> elements_of(const IdxArray& array) {
  std::vector<T> elements(array.bytes.size() / sizeof(T));
  std::memcpy(elements.data(), array.bytes.data(), array.bytes.size());
  return elements;
}

class Idx : public ::testing::Test {
 protected:
  // Error of read_idx() for a file with these bytes.
  CaughtError error_for(const std::string& bytes, std::uint64_t max_bytes = kIdxMaxBytes) {
    const std::string path = folder_.write("file", bytes);
    const CaughtError error = error_of([&] { (void)read_idx(path, max_bytes); });
    EXPECT_THAT(error.message, HasSubstr(path));
    return error;
  }

  test::TemporaryFolder folder_;
};

TEST_F(Idx, ReadsDimsAndBytes) {
  const std::string elements = some_bytes(24);
  const IdxArray array = read_idx(folder_.write("a", idx_bytes(0x08, {2, 3, 4}, elements)));
  EXPECT_EQ(array.dtype, DType::kUInt8);
  EXPECT_THAT(array.dims, ElementsAre(2, 3, 4));
  EXPECT_EQ(text_of(array.bytes), elements);
}

TEST_F(Idx, ReadsMoreThanItsBuffersHold) {
  const std::string elements = some_bytes(5'000'003);
  const IdxArray array = read_idx(folder_.write("a", idx_bytes(0x08, {5'000'003}, elements)));
  EXPECT_EQ(text_of(array.bytes), elements);
}

TEST_F(Idx, ReadsEveryElementTypeInNativeOrder) {
  const std::string i8("\xff\x02", 2);
  EXPECT_THAT(elements_of<std::int8_t>(read_idx(folder_.write("i8", idx_bytes(0x09, {2}, i8)))),
              ElementsAre(-1, 2));
  const std::string i16("\xff\xfe\x01\x02", 4);
  EXPECT_THAT(elements_of<std::int16_t>(read_idx(folder_.write("i16", idx_bytes(0x0b, {2}, i16)))),
              ElementsAre(-2, 0x0102));
  const std::string i32("\x01\x02\x03\x04", 4);
  EXPECT_THAT(elements_of<std::int32_t>(read_idx(folder_.write("i32", idx_bytes(0x0c, {1}, i32)))),
              ElementsAre(0x01020304));
  const std::string f32("\x3f\x80\x00\x00\xc0\x20\x00\x00", 8);
  EXPECT_THAT(elements_of<float>(read_idx(folder_.write("f32", idx_bytes(0x0d, {2}, f32)))),
              ElementsAre(1.0F, -2.5F));
  const std::string f64("\xc0\x04\x00\x00\x00\x00\x00\x00", 8);
  const IdxArray doubles = read_idx(folder_.write("f64", idx_bytes(0x0e, {1, 1}, f64)));
  EXPECT_EQ(doubles.dtype, DType::kFloat64);
  EXPECT_THAT(elements_of<double>(doubles), ElementsAre(-2.5));
}

TEST_F(Idx, ADimensionOfZeroIsAnEmptyArray) {
  const IdxArray array =
      read_idx(folder_.write("a", idx_bytes(0x08, {0xffffffff, 0xffffffff, 0xffffffff, 0}, "")));
  EXPECT_TRUE(array.bytes.empty());
  EXPECT_EQ(array.dims.size(), 4U);
}

TEST_F(Idx, EveryTruncationSaysWhatIsThere) {
  const std::string whole = idx_bytes(0x08, {2, 3}, some_bytes(6));
  ASSERT_EQ(whole.size(), 18U);
  for (std::size_t n_bytes = 0; n_bytes < whole.size(); ++n_bytes) {
    const CaughtError error = error_for(whole.substr(0, n_bytes));
    EXPECT_EQ(error.code, ErrorCode::kCorruptData) << n_bytes;
    if (n_bytes < 4) {
      EXPECT_THAT(error.message,
                  HasSubstr("not an IDX file: it has " + std::to_string(n_bytes) + " bytes"));
    } else if (n_bytes < 12) {
      EXPECT_THAT(error.message,
                  AllOf(HasSubstr("truncated: it ends inside the header, which has 12 bytes"),
                        HasSubstr("; " + std::to_string(n_bytes) + " are there")));
    } else {
      EXPECT_THAT(error.message,
                  AllOf(HasSubstr("truncated: " + std::to_string(n_bytes) + " of 18 bytes"),
                        HasSubstr("2 x 3 elements of type u8")));
    }
  }
}

TEST_F(Idx, EveryFlippedBitOfTheHeaderIsAnError) {
  const std::string whole = idx_bytes(0x08, {2, 3}, some_bytes(6));
  for (std::size_t bit = 0; bit < std::size_t{12} * 8; ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    if (bit == 16) {  // u8 becomes i8, which is valid
      EXPECT_EQ(read_idx(folder_.write("i8", damaged)).dtype, DType::kInt8);
      continue;
    }
    const ErrorCode code = error_for(damaged).code;
    EXPECT_TRUE(code == ErrorCode::kCorruptData || code == ErrorCode::kInvalidArgument)
        << "bit " << bit << ": " << to_string(code);
  }
}

TEST_F(Idx, ForeignFilesAreNamedByTheirFirstBytes) {
  EXPECT_THAT(error_for("PK\3\4").message,
              HasSubstr("not an IDX file: it begins with 50 4b 03 04 \"PK..\""));
  EXPECT_THAT(error_for("<!DOCTYPE html>").message, HasSubstr("is a web page"));
  EXPECT_THAT(error_for(idx_bytes(0x0a, {1}, "x")).message,
              AllOf(HasSubstr("type code is 0x0a"), HasSubstr("08 (u8)")));
  EXPECT_THAT(error_for(idx_bytes(0x08, {}, "x")).message, HasSubstr("0 dimensions"));
}

TEST_F(Idx, BytesLeftOverAreAnError) {
  const CaughtError error = error_for(idx_bytes(0x08, {3}, "abcd"));
  EXPECT_EQ(error.code, ErrorCode::kCorruptData);
  EXPECT_THAT(error.message, HasSubstr("bytes are left over after the 11 that"));
}

TEST_F(Idx, AbsurdDimensionsStopBeforeMemoryIsTaken) {
  const std::uint32_t most = 0xffffffff;
  const std::vector<std::vector<std::uint32_t>> cases{
      {most, most}, {most, most, most}, std::vector<std::uint32_t>(255, most)};
  for (const std::vector<std::uint32_t>& dims : cases) {
    const CaughtError error = error_for(idx_bytes(0x0e, dims, "x"));
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.message,
                HasSubstr("too large, or a damaged header: 4294967295 x 4294967295"));
  }
  // The product must not wrap to a small number, also without a limit.
  EXPECT_EQ(error_for(idx_bytes(0x08, {65536, 65536, 65536, 65536, 1}, "x"), UINT64_MAX).code,
            ErrorCode::kInvalidArgument);
}

TEST_F(Idx, TheLimitCountsElementBytes) {
  const std::string floats = idx_bytes(0x0d, {4}, some_bytes(16));
  EXPECT_EQ(read_idx(folder_.write("floats", floats), 16).bytes.size(), 16U);
  EXPECT_THAT(error_for(floats, 15).message, HasSubstr("limit of 15 bytes"));
}

TEST_F(Idx, ALargeHeaderOnASmallFileIsTruncatedAtOnce) {
  const CaughtError error = error_for(idx_bytes(0x08, {3'000'000'000}, "x"));
  EXPECT_THAT(error.message, HasSubstr("truncated: 9 of 3000000008 bytes"));
}

TEST_F(Idx, WhatIsNoRegularFileIsSaidSo) {
  const CaughtError missing = error_of([&] { (void)read_idx(folder_.path() + "/no/such/file"); });
  EXPECT_EQ(missing.code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.message, HasSubstr("/no/such/file: there is no such file"));

  const CaughtError folder = error_of([&] { (void)read_idx(folder_.path()); });
  EXPECT_EQ(folder.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(folder.message, HasSubstr("is a folder, not a file"));

  const std::string pipe = folder_.path() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { (void)read_idx(pipe); }).message, HasSubstr("is not a regular file"));
}

class IdxGzip : public ::testing::Test {
 protected:
  std::string elements_in(const std::string& bytes) {
    const IdxArray array = read_idx(folder_.write("file", bytes));
    return {reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size()};
  }

  CaughtError error_for(const std::string& bytes) {
    const std::string path = folder_.write("file", bytes);
    const CaughtError error = error_of([&] { (void)read_idx(path); });
    EXPECT_THAT(error.message, HasSubstr(path));
    return error;
  }

  test::TemporaryFolder folder_;
};

TEST_F(IdxGzip, IsToldByContentNotByName) {
  const std::string whole = idx_bytes(0x08, {2, 3}, some_bytes(6));
  EXPECT_EQ(elements_in(gzip(whole)), some_bytes(6));

  const IdxArray plain = read_idx(folder_.write("plain.gz", whole));
  EXPECT_EQ(plain.bytes.size(), 6U);
}

TEST_F(IdxGzip, ReadsMoreThanItsBuffersHold) {
  const std::string elements = some_bytes(5'000'003);
  EXPECT_EQ(elements_in(gzip(idx_bytes(0x08, {5'000'003}, elements))), elements);
}

TEST_F(IdxGzip, MembersThatFollowEachOtherAreOneContent) {
  const std::string whole = idx_bytes(0x08, {2, 3}, some_bytes(6));
  for (std::size_t cut = 0; cut <= whole.size(); ++cut) {
    EXPECT_EQ(elements_in(gzip(whole.substr(0, cut)) + gzip(whole.substr(cut)) + gzip("")),
              some_bytes(6))
        << "cut after " << cut;
  }
}

TEST_F(IdxGzip, EveryTruncationIsAnError) {
  const std::string packed = gzip(idx_bytes(0x08, {10, 30}, some_bytes(300)));
  for (std::size_t n_bytes = 0; n_bytes < packed.size(); ++n_bytes) {
    const CaughtError error = error_for(packed.substr(0, n_bytes));
    EXPECT_EQ(error.code, ErrorCode::kCorruptData) << n_bytes;
    EXPECT_THAT(error.message,
                HasSubstr(n_bytes < 2 ? "not an IDX file"
                                      : "the gzip data ends early: all " + std::to_string(n_bytes) +
                                            " bytes"));
  }
}

TEST_F(IdxGzip, AFlippedBitNeverGivesOtherElements) {
  const std::string whole = idx_bytes(0x08, {4, 5}, some_bytes(20));
  const std::string packed = gzip(whole);
  int n_harmless = 0;
  for (std::size_t bit = 0; bit < packed.size() * 8; ++bit) {
    std::string damaged = packed;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    try {
      EXPECT_EQ(elements_in(damaged), some_bytes(20)) << "bit " << bit;
      ++n_harmless;
    } catch (const Error& error) {
      // The first sign of damage may be impossible dimensions.
      EXPECT_THAT(error.code(), AnyOf(ErrorCode::kCorruptData, ErrorCode::kInvalidArgument))
          << error.what();
    }
  }
  // Time (4 bytes), level, system and text flag of the header, and up to 7 bits of padding after
  // the compressed data.
  EXPECT_LE(n_harmless, 6 * 8 + 1 + 7);
}

TEST_F(IdxGzip, CorruptDataIsToldInZlibsWords) {
  std::string packed = gzip(idx_bytes(0x08, {10, 30}, some_bytes(300)));
  packed[packed.size() - 8] = static_cast<char>(packed[packed.size() - 8] ^ 1);
  EXPECT_THAT(error_for(packed).message,
              HasSubstr("corrupt gzip data after 312 bytes of content: incorrect data check"));

  EXPECT_THAT(error_for(gzip(idx_bytes(0x08, {1}, "x")) + "trailing").message,
              HasSubstr("incorrect header check"));
}

TEST_F(IdxGzip, CountsTheContentNotTheFile) {
  EXPECT_THAT(error_for(gzip(idx_bytes(0x08, {4'000'000'000}, "abc"))).message,
              HasSubstr("truncated: 11 of 4000000008 bytes"));
  EXPECT_THAT(error_for(gzip(idx_bytes(0x08, {3}, "abcd"))).message,
              HasSubstr("bytes are left over after the 11"));
  EXPECT_THAT(error_for(gzip(gzip(idx_bytes(0x08, {1}, "x")))).message,
              HasSubstr("not an IDX file: it begins with 1f 8b"));
}

}  // namespace
}  // namespace unisono::datasets
