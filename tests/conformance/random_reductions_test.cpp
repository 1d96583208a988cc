// Random reductions of ranks on random layouts: the result always has the canonical tree's bits.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/reduction.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/transport/shm/control_block.h"

#include "blocks.h"
#include "reference.h"
#include "support/ranks.h"

namespace unisono {
namespace {

using test::contribution;
using test::Memory;
using test::TestMemory;

using Bytes = std::vector<std::byte>;

constexpr unsigned kTrials = 3;
constexpr unsigned kCallsPerTrial = 30;

// UNISONO_PROPERTY_SEED selects another seed.
unsigned property_seed() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread runs yet.
  const char* const seed = std::getenv("UNISONO_PROPERTY_SEED");
  return seed == nullptr ? 1 : static_cast<unsigned>(std::strtoul(seed, nullptr, 10));
}

enum class Kind { kAllReduce, kReduce, kReduceScatter };

// A call that is equal on all ranks.
struct Reduction {
  Kind kind = Kind::kAllReduce;
  DType dtype = DType::kFloat32;
  ReduceOp op;
  Algorithm algorithm = Algorithm::kAuto;
  int root = 0;
  std::vector<std::int64_t> counts;  // Counts of the ranks' blocks in a reduce_scatter.
  bool is_even = false;              // The counts are equal and not passed.
  unsigned memory = 0;               // Symmetric memory on no rank, on all ranks, or on some.

  [[nodiscard]] std::int64_t count() const { return test::sum(counts); }

  [[nodiscard]] Memory memory_of(int rank) const {
    const bool is_symmetric = memory == 1 || (memory == 2 && rank % 3 != 0);
    return is_symmetric ? Memory::kSymmetric : Memory::kPrivate;
  }
};

std::string describe(const Reduction& reduction) {
  constexpr std::array kNames{"all_reduce", "reduce", "reduce_scatter"};
  std::string text = std::string(kNames.at(static_cast<std::size_t>(reduction.kind))) + " " +
                     to_string(reduction.op.kind) + " by " + to_string(reduction.algorithm) +
                     " of " + to_string(reduction.dtype) + "[" + std::to_string(reduction.count()) +
                     "], to " + std::to_string(reduction.root) + ", blocks of";
  for (const std::int64_t count : reduction.counts) {
    text += " " + std::to_string(count);
  }
  return text + ", memory " + std::to_string(reduction.memory);
}

class Draw {
 public:
  Draw(unsigned seed, int world_size) : random_(seed), world_size_(world_size) {}

  // Draws an existing reduction.
  Reduction reduction() {
    const std::vector<ReduceOp> operations{
        kSum, kAvg, kProduct, kMin, kMax, kBand, kBor, kBxor, premul_sum(-1.7)};
    Reduction drawn;
    do {
      drawn.dtype = static_cast<DType>(below(kDTypeCount));
      drawn.op = operations[below(operations.size())];
    } while (!test::is_allowed(drawn.dtype, drawn.op.kind));
    drawn.kind = static_cast<Kind>(below(3));
    drawn.root = static_cast<int>(below(static_cast<std::size_t>(world_size_)));
    drawn.is_even = below(2) == 0;
    drawn.counts = blocks(total(drawn.dtype), drawn.is_even);
    drawn.memory = static_cast<unsigned>(below(3));
    drawn.algorithm = algorithm(drawn);
    return drawn;
  }

  std::vector<std::string> nodes() {
    const std::size_t n_nodes = 1 + below(static_cast<std::size_t>(world_size_));
    std::vector<std::string> nodes;
    for (int rank = 0; rank < world_size_; ++rank) {
      nodes.push_back("node" + std::to_string(below(n_nodes)));
    }
    return nodes;
  }

 private:
  std::size_t below(std::size_t limit) { return random_() % limit; }

  // Draws a count of any magnitude; sometimes several MiB, beyond a staging buffer or window.
  std::int64_t total(DType dtype) {
    constexpr std::size_t kLargeBytes = 5 << 20;
    const std::size_t count = below(kCallsPerTrial) == 0 ? below(kLargeBytes / size_of(dtype))
                                                         : below(std::size_t{1} << below(17));
    return static_cast<std::int64_t>(count);
  }

  std::vector<std::int64_t> blocks(std::int64_t total, bool is_even) {
    std::vector<std::int64_t> counts;
    for (int rank = 0; rank < world_size_; ++rank) {
      const int n_left = world_size_ - rank;
      const auto any = static_cast<std::int64_t>(below(static_cast<std::size_t>(total) + 1));
      counts.push_back(is_even ? total / world_size_ : n_left == 1 ? total : any);
      total -= is_even ? 0 : counts.back();
    }
    return counts;
  }

  // Draws `auto` or an algorithm that `auto` may select on any layout.
  Algorithm algorithm(const Reduction& drawn) {
    std::vector<Algorithm> algorithms{Algorithm::kAuto, Algorithm::kTwoShot};
    if (drawn.kind != Kind::kReduceScatter &&
        drawn.count() * static_cast<std::int64_t>(size_of(drawn.dtype)) <= shm::kSlotBytes) {
      algorithms.push_back(Algorithm::kOneShot);
    }
    if (drawn.kind == Kind::kAllReduce) {
      algorithms.push_back(Algorithm::kTree);
      algorithms.push_back(Algorithm::kHalvingDoubling);
    }
    return algorithms[below(algorithms.size())];
  }

  std::mt19937 random_;
  int world_size_;
};

// Returns this rank's result; empty if the rank gets no result.
Bytes run(ProcessGroup& group, const Reduction& drawn, unsigned seed) {
  const Memory memory = drawn.memory_of(group.rank());
  const Bytes mine = contribution(drawn.dtype, drawn.count(), group.rank(), seed);
  const TestMemory in(group, memory, drawn.dtype, mine);
  const auto n_out = [&](std::int64_t count) {
    return TestMemory(group, memory, count, drawn.dtype);
  };
  switch (drawn.kind) {
    case Kind::kAllReduce: {
      group.all_reduce(in.buffer(), {.op = drawn.op, .algorithm = drawn.algorithm});
      return in.bytes();
    }
    case Kind::kReduce: {
      const bool is_root = group.rank() == drawn.root;
      const TestMemory out = n_out(is_root ? drawn.count() : 0);
      group.reduce(in.buffer(),
                   is_root ? out.buffer() : Buffer(),
                   {.root = drawn.root, .op = drawn.op, .algorithm = drawn.algorithm});
      return out.bytes();
    }
    case Kind::kReduceScatter: {
      const TestMemory out = n_out(drawn.counts[static_cast<std::size_t>(group.rank())]);
      group.reduce_scatter(in.buffer(),
                           out.buffer(),
                           {.op = drawn.op,
                            .counts = drawn.is_even ? std::vector<std::int64_t>() : drawn.counts,
                            .algorithm = drawn.algorithm});
      return out.bytes();
    }
  }
  return {};
}

// Returns the part of the whole result that `rank` gets.
Bytes part_of(const Bytes& whole, const Reduction& drawn, int rank) {
  if (drawn.kind == Kind::kAllReduce) {
    return whole;
  }
  if (drawn.kind == Kind::kReduce) {
    return rank == drawn.root ? whole : Bytes();
  }
  const auto own = drawn.counts.begin() + rank;
  const auto size = static_cast<std::int64_t>(size_of(drawn.dtype));
  const auto begin = whole.begin() + test::sum({drawn.counts.begin(), own}) * size;
  return {begin, begin + *own * size};
}

class RandomReductions : public ::testing::TestWithParam<int> {};

TEST_P(RandomReductions, AreTheCanonicalTreesWhateverIsChosen) {
  const int world_size = GetParam();
  const unsigned seed = property_seed() * 100 + static_cast<unsigned>(world_size);
  Draw layouts(seed, world_size);
  for (unsigned trial = 0; trial < kTrials; ++trial) {
    const std::vector<std::string> nodes = layouts.nodes();
    test::Expected expected(world_size);
    test::run_ranks({.nodes = nodes}, [&](ProcessGroup& group) {
      Draw draw(seed + trial, world_size);  // Every rank makes the same draw.
      for (unsigned call = 0; call < kCallsPerTrial; ++call) {
        const Reduction drawn = draw.reduction();
        const Bytes& whole = expected.all_reduce(drawn.dtype, drawn.op, drawn.count(), call);
        // EXPECT_EQ would print all bytes.
        ASSERT_TRUE(run(group, drawn, call) == part_of(whole, drawn, group.rank()))
            << "UNISONO_PROPERTY_SEED=" << property_seed() << ", trial " << trial << ", call "
            << call << " on rank " << group.rank() << ": " << describe(drawn);
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, RandomReductions, ::testing::Range(1, 10));

}  // namespace
}  // namespace unisono
