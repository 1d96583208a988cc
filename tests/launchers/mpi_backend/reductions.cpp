// Compares reductions by MPI with the plain reference: integers bit for bit, other numbers within
// the error of the order of additions. Integers are small because overflow depends on the MPI: Open
// MPI 4.1 saturates i8 at 127, and MPICH 4.0 treats u8 above 127 as negative.

#include <array>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/reduction.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

#include "conformance/blocks.h"
#include "conformance/reference.h"
#include "rank.h"

namespace unisono::test {
namespace {

constexpr std::array kKinds{ReduceKind::kSum,
                            ReduceKind::kAvg,
                            ReduceKind::kProduct,
                            ReduceKind::kMin,
                            ReduceKind::kMax,
                            ReduceKind::kBand,
                            ReduceKind::kBor,
                            ReduceKind::kBxor};

constexpr std::array<std::int64_t, 5> kCounts{0, 1, 3, 1000, 9001};

bool is_in_mpi(DType dtype) {
  return dtype != DType::kFloat16 && dtype != DType::kBFloat16;
}

std::vector<std::byte> numbers(DType dtype, std::int64_t count, int rank, unsigned seed) {
  std::vector<std::byte> bytes = contribution(dtype, count, rank, seed);
  const bool is_integer = dtype < DType::kFloat16;
  for (std::size_t at = 0; is_integer && at < bytes.size(); ++at) {
    bytes[at] = at % size_of(dtype) == 0 ? bytes[at] & std::byte{3} : std::byte{0};
  }
  return bytes;
}

std::vector<std::byte> expected(
    DType dtype, const ReduceOp& op, std::int64_t count, int world_size, unsigned seed) {
  std::vector<std::vector<std::byte>> all;
  for (int rank = 0; rank < world_size; ++rank) {
    all.push_back(numbers(dtype, count, rank, seed));
  }
  return expected_reduction(dtype, op, all);
}

template <class T>
void expect_near(std::span<const std::byte> got,
                 std::span<const std::byte> expected,
                 double limit) {
  for (std::size_t at = 0; at < got.size(); at += sizeof(T)) {
    T mine{};
    T right{};
    std::memcpy(&mine, got.data() + at, sizeof(T));
    std::memcpy(&right, expected.data() + at, sizeof(T));
    if (!(std::abs(mine - right) <= limit)) {
      ADD_FAILURE() << "element " << at / sizeof(T) << " is " << mine << ", not " << right;
      return;
    }
  }
}

// Contributions are below 50, so partial results are below 75 to the power of the number of ranks
// (complex products), or below 75 times the number of ranks.
void expect_result(DType dtype,
                   ReduceKind kind,
                   const std::vector<std::byte>& got,
                   const std::vector<std::byte>& right) {
  ASSERT_EQ(got.size(), right.size());
  const int n = world()->world_size();
  const double largest = kind == ReduceKind::kProduct ? std::pow(75.0, n) : 75.0 * n;
  switch (dtype) {
    case DType::kFloat32:
      return expect_near<float>(got, right, largest * 1e-6);
    case DType::kFloat64:
      return expect_near<double>(got, right, largest * 1e-14);
    case DType::kComplex64:
      return expect_near<std::complex<float>>(got, right, largest * 1e-6);
    case DType::kComplex128:
      return expect_near<std::complex<double>>(got, right, largest * 1e-14);
    default:
      EXPECT_EQ(got, right);
  }
}

// Calls `call` for each reduction that the MPI supports.
template <class Call>
void for_each_reduction(Call call) {
  for (int number = 0; number < kDTypeCount; ++number) {
    const auto dtype = static_cast<DType>(number);
    for (const ReduceKind kind : kKinds) {
      if (is_in_mpi(dtype) && is_allowed(dtype, kind)) {
        SCOPED_TRACE(std::string(to_string(kind)) + " of " + to_string(dtype));
        call(dtype, kind);
      }
    }
  }
}

std::vector<std::byte> part(const std::vector<std::byte>& whole, std::size_t begin, std::size_t n) {
  const auto from = whole.begin() + static_cast<std::ptrdiff_t>(begin);
  return {from, from + static_cast<std::ptrdiff_t>(n)};
}

TEST(MpiReductions, AllReduceIsThatOfTheReference) {
  ProcessGroup& group = *world();
  for_each_reduction([&](DType dtype, ReduceKind kind) {
    for (const std::int64_t count : kCounts) {
      const ReduceOp op{kind};
      const auto mine = numbers(dtype, count, group.rank(), 1);
      const auto right = expected(dtype, op, count, group.world_size(), 1);
      const TestMemory in(group, Memory::kPrivate, dtype, mine);
      const TestMemory out(group, Memory::kPrivate, count, dtype);
      group.all_reduce(in.buffer(), out.buffer(), {.op = op});
      expect_result(dtype, kind, out.bytes(), right);
      EXPECT_EQ(in.bytes(), mine);
      group.all_reduce_async(in.buffer(), {.op = op}).wait();
      expect_result(dtype, kind, in.bytes(), right);
    }
  });
}

TEST(MpiReductions, ReduceLeavesOtherRanksBuffersAlone) {
  ProcessGroup& group = *world();
  for_each_reduction([&](DType dtype, ReduceKind kind) {
    for (int root = 0; root < group.world_size(); ++root) {
      const ReduceOp op{kind};
      const auto mine = numbers(dtype, 1000, group.rank(), 2);
      const auto right = expected(dtype, op, 1000, group.world_size(), 2);
      const TestMemory both(group, Memory::kSymmetric, dtype, mine);
      group.reduce(both.buffer(), both.buffer(), {.root = root, .op = op});
      if (group.rank() == root) {
        expect_result(dtype, kind, both.bytes(), right);
      } else {
        EXPECT_EQ(both.bytes(), mine);
      }
    }
  });
}

TEST(MpiReductions, ReduceScatterGivesEachRankItsBlock) {
  ProcessGroup& group = *world();
  const auto rank = static_cast<std::size_t>(group.rank());
  for_each_reduction([&](DType dtype, ReduceKind kind) {
    const ReduceOp op{kind};
    const std::vector<std::int64_t> equal(static_cast<std::size_t>(group.world_size()), 77);
    for (const auto& counts : {equal, uneven_counts(group.world_size(), 50, 3)}) {
      const std::int64_t total = sum(counts);
      const auto mine = numbers(dtype, total, group.rank(), 3);
      const auto whole = expected(dtype, op, total, group.world_size(), 3);
      std::size_t begin = 0;
      for (std::size_t peer = 0; peer < rank; ++peer) {
        begin += static_cast<std::size_t>(counts[peer]) * size_of(dtype);
      }
      const std::vector<std::byte> right =
          part(whole, begin, static_cast<std::size_t>(counts[rank]) * size_of(dtype));
      const TestMemory in(group, Memory::kPrivate, dtype, mine);
      const TestMemory out(group, Memory::kPrivate, counts[rank], dtype);
      group.reduce_scatter(in.buffer(), out.buffer(), {.op = op, .counts = counts});
      expect_result(dtype, kind, out.bytes(), right);
      EXPECT_EQ(in.bytes(), mine);
      // The input is a list of blocks, and the output is the rank's own block.
      const std::vector<Buffer> blocks = cut(in.buffer(), counts);
      group.reduce_scatter(blocks, blocks[rank], {.op = op});
      expect_result(dtype, kind, bytes_of(blocks[rank]), right);
    }
  });
}

TEST(MpiReductions, CoalescedOnesAreOneOperation) {
  ProcessGroup& group = *world();
  std::vector<double> a(3, group.rank());
  std::vector<double> b(1000, 1.0);
  group.all_reduce_coalesced(std::vector{as_buffer(std::span(a)), as_buffer(std::span(b))},
                             {.op = kAvg});
  EXPECT_EQ(a[2], (group.world_size() - 1) / 2.0);
  EXPECT_EQ(b[999], 1.0);
  std::vector<double> whole(static_cast<std::size_t>(2 * group.world_size()), 2.0);
  std::vector<double> own(2);
  group.reduce_scatter_coalesced(std::vector{as_buffer(std::span(whole))},
                                 std::vector{as_buffer(std::span(own))});
  EXPECT_EQ(own[1], 2.0 * group.world_size());
  std::vector<double> gathered(static_cast<std::size_t>(2 * group.world_size()));
  own = {group.rank() + 0.5, -1.0};
  group.all_gather_coalesced(std::vector{as_buffer(std::span(own))},
                             std::vector{as_buffer(std::span(gathered))});
  for (int rank = 0; rank < group.world_size(); ++rank) {
    EXPECT_EQ(gathered[static_cast<std::size_t>(2 * rank)], rank + 0.5);
  }
}

}  // namespace
}  // namespace unisono::test
