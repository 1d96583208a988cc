#include <cstddef>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/data/readers/idx.h"
#include "unisono/data/testing/idx_writer.h"

#include "support/temporary_folder.h"

namespace unisono {
namespace {

using data::testing::CaughtError;
using data::testing::error_of;
using data::testing::gzip;
using data::testing::idx_bytes;
using data::testing::some_bytes;
using ::testing::AnyOf;
using ::testing::HasSubstr;

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
      // Damage may first show as absurd dimensions.
      EXPECT_THAT(error.code(), AnyOf(ErrorCode::kCorruptData, ErrorCode::kInvalidArgument))
          << error.what();
    }
  }
  // Time (4 bytes), level and system of the header, its text flag, and up to 7 bits of padding
  // where the compressed data ends.
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
}  // namespace unisono
