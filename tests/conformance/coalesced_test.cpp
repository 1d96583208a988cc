// Coalesced operations give the same bits as one operation for each buffer.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"

#include "reference.h"
#include "support/ranks.h"

namespace unisono {
namespace {

using test::contribution;
using test::run_ranks;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;

using Bytes = std::vector<std::byte>;

// Lists of counts: an empty list, empty buffers, few elements, and more elements than a slot holds.
const std::vector<std::vector<std::int64_t>> kLists{
    {}, {0}, {1}, {3, 0, 5, 1}, {7, 7}, {1000, 1, 5000}, {40000, 2, 60001}};

Buffer as_elements(Bytes& bytes, DType dtype) {
  return {.data = bytes.data(),
          .count = static_cast<std::int64_t>(bytes.size() / size_of(dtype)),
          .dtype = dtype};
}

std::vector<Buffer> as_elements(std::vector<Bytes>& list, DType dtype) {
  std::vector<Buffer> buffers;
  for (Bytes& bytes : list) {
    buffers.push_back(as_elements(bytes, dtype));
  }
  return buffers;
}

std::vector<Bytes> contributions(DType dtype,
                                 const std::vector<std::int64_t>& counts,
                                 int factor,
                                 int rank) {
  std::vector<Bytes> list;
  for (const std::int64_t count : counts) {
    list.push_back(
        contribution(dtype, factor * count, rank, static_cast<unsigned>(list.size()) + 20));
  }
  return list;
}

class CoalescedWorlds : public ::testing::TestWithParam<int> {};

TEST_P(CoalescedWorlds, AllReduceIsThatOfEachBuffer) {
  for (const test::World& world : test::worlds_of(GetParam())) {
    run_ranks(world, [](ProcessGroup& group) {
      for (const std::vector<std::int64_t>& counts : kLists) {
        for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
          for (const ReduceOp& op : {kSum, kAvg, premul_sum(0.3)}) {
            if (!test::is_allowed(dtype, op.kind)) {
              continue;
            }
            std::vector<Bytes> together = contributions(dtype, counts, 1, group.rank());
            std::vector<Bytes> apart = together;
            group.all_reduce_coalesced(as_elements(together, dtype), {.op = op});
            for (Bytes& bytes : apart) {
              group.all_reduce(as_elements(bytes, dtype), {.op = op});
            }
            ASSERT_EQ(together, apart);
          }
        }
      }
    });
  }
}

TEST_P(CoalescedWorlds, ReduceScatterIsThatOfEachBuffer) {
  for (const test::World& world : test::worlds_of(GetParam())) {
    run_ranks(world, [](ProcessGroup& group) {
      for (const std::vector<std::int64_t>& counts : kLists) {
        std::vector<Bytes> ins =
            contributions(DType::kFloat32, counts, group.world_size(), group.rank());
        std::vector<Bytes> together = contributions(DType::kFloat32, counts, 1, 99);
        std::vector<Bytes> apart = together;
        const std::vector<Bytes> before = ins;
        group.reduce_scatter_coalesced(as_elements(ins, DType::kFloat32),
                                       as_elements(together, DType::kFloat32));
        ASSERT_EQ(ins, before);
        for (std::size_t index = 0; index < counts.size(); ++index) {
          group.reduce_scatter(as_elements(ins[index], DType::kFloat32),
                               as_elements(apart[index], DType::kFloat32));
        }
        ASSERT_EQ(together, apart);
      }
    });
  }
}

TEST_P(CoalescedWorlds, AllGatherIsThatOfEachBuffer) {
  for (const test::World& world : test::worlds_of(GetParam())) {
    run_ranks(world, [](ProcessGroup& group) {
      for (const std::vector<std::int64_t>& counts : kLists) {
        std::vector<Bytes> ins = contributions(DType::kInt16, counts, 1, group.rank());
        std::vector<Bytes> together = contributions(DType::kInt16, counts, group.world_size(), 99);
        std::vector<Bytes> apart = together;
        group.all_gather_coalesced(as_elements(ins, DType::kInt16),
                                   as_elements(together, DType::kInt16));
        for (std::size_t index = 0; index < counts.size(); ++index) {
          group.all_gather(as_elements(ins[index], DType::kInt16),
                           as_elements(apart[index], DType::kInt16));
        }
        ASSERT_EQ(together, apart);
      }
    });
  }
}

// Returns this rank's block of each buffer.
std::vector<Buffer> own_blocks(const ProcessGroup& group, std::vector<Buffer> wholes) {
  for (Buffer& whole : wholes) {
    whole.count /= group.world_size();
    whole.data = static_cast<std::byte*>(whole.data) + group.rank() * whole.n_bytes();
  }
  return wholes;
}

TEST_P(CoalescedWorlds, AllGatherAndReduceScatterWorkInPlace) {
  for (const test::World& world : test::worlds_of(GetParam())) {
    run_ranks(world, [](ProcessGroup& group) {
      constexpr DType kDType = DType::kInt32;
      for (const std::vector<std::int64_t>& counts : kLists) {
        std::vector<Bytes> in_place =
            contributions(kDType, counts, group.world_size(), group.rank());
        std::vector<Bytes> apart = in_place;
        const std::vector<Buffer> in_place_wholes = as_elements(in_place, kDType);
        const std::vector<Buffer> wholes = as_elements(apart, kDType);

        group.all_gather_coalesced(own_blocks(group, in_place_wholes), in_place_wholes);
        for (const Buffer& whole : wholes) {
          group.all_gather(own_blocks(group, {whole}).front(), whole);
        }
        ASSERT_EQ(in_place, apart);

        group.reduce_scatter_coalesced(in_place_wholes, own_blocks(group, in_place_wholes));
        for (const Buffer& whole : wholes) {
          group.reduce_scatter(whole, own_blocks(group, {whole}).front());
        }
        ASSERT_EQ(in_place, apart);
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, CoalescedWorlds, ::testing::Values(1, 2, 3, 5));

TEST(Coalesced, AsynchronousOnesKeepTheOrderOfCalls) {
  run_ranks({.nodes = {"a", "a", "b"}}, [](ProcessGroup& group) {
    std::vector<std::vector<float>> values;
    std::vector<Work> works;
    for (int call = 0; call < 20; ++call) {
      values.emplace_back(10, static_cast<float>(call));
      values.emplace_back(3, 1.0F);
    }
    for (std::size_t call = 0; call < 20; ++call) {
      const std::vector<Buffer> buffers{as_buffer(std::span(values[2 * call])),
                                        as_buffer(std::span(values[2 * call + 1]))};
      works.push_back(group.all_reduce_coalesced_async(buffers));
    }
    for (Work& work : works) {
      work.wait();
    }
    for (std::size_t call = 0; call < 20; ++call) {
      EXPECT_EQ(values[2 * call], std::vector<float>(10, 3 * static_cast<float>(call)));
      EXPECT_EQ(values[2 * call + 1], std::vector<float>(3, 3.0F));
    }
  });
}

TEST(Coalesced, ABufferThatComesTwiceIsReducedOnce) {
  for (const test::World& world : {test::one_node(2), test::World{.nodes = {"a", "b"}}}) {
    run_ranks(world, [](ProcessGroup& group) {
      std::vector<float> tied(3, 1.0F + static_cast<float>(group.rank()));
      std::vector<float> other(5, 1.0F);
      const std::vector<Buffer> buffers{
          as_buffer(std::span(tied)), as_buffer(std::span(other)), as_buffer(std::span(tied))};
      group.all_reduce_coalesced(buffers);
      EXPECT_EQ(tied, std::vector<float>(3, 3.0F));
      EXPECT_EQ(other, std::vector<float>(5, 2.0F));
    });
  }
}

// The total number of elements is equal, but the boundaries differ.
TEST(Coalesced, RanksThatCutDifferentlyAreTold) {
  for (const test::World& world : {test::one_node(2), test::World{.nodes = {"a", "b"}}}) {
    const auto errors = test::errors_of_ranks(world, [](ProcessGroup& group) {
      std::vector<float> first(group.rank() == 0 ? 6 : 5, 1.0F);
      std::vector<float> second(group.rank() == 0 ? 4 : 5, 1.0F);
      const std::vector<Buffer> buffers{as_buffer(std::span(first)), as_buffer(std::span(second))};
      group.all_reduce_coalesced(buffers);
    });
    EXPECT_THAT(errors,
                Each(AllOf(HasSubstr("ranks called all_reduce_coalesced with different sizes: "),
                           HasSubstr("all_reduce_coalesced #1 (f32[10] in 2 buffers"),
                           AnyOf(HasSubstr("2 buffers of 6, 4, sum"),
                                 HasSubstr("2 buffers of 5 each, sum")))));
  }
}

std::int64_t resident_bytes() {
  std::int64_t n_pages = 0;
  std::ifstream statm("/proc/self/statm");
  statm >> n_pages >> n_pages;
  return n_pages * ::sysconf(_SC_PAGESIZE);
}

TEST(Coalesced, SmallCallsGiveBackWhatALargeOneNeeded) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep freed memory";
#endif
  run_ranks(test::one_node(1), [](ProcessGroup& group) {
    std::vector<float> values(std::size_t{32} << 20, 1.0F);
    const std::vector<Buffer> buffers{as_buffer(std::span(values))};
    const std::int64_t n_before = resident_bytes();
    group.all_reduce_coalesced(buffers);
    EXPECT_GT(resident_bytes() - n_before, std::int64_t{128} << 20);
    for (int call = 0; call < 20; ++call) {
      group.all_reduce_coalesced(std::vector<Buffer>{as_buffer(std::span(values).first(100))});
    }
    EXPECT_LT(resident_bytes() - n_before, std::int64_t{32} << 20);
  });
}

TEST(Coalesced, WrongArgumentsAreRefusedBeforeAnythingIsSent) {
  run_ranks(test::one_node(2), [](ProcessGroup& group) {
    std::vector<float> floats(10, 1.0F);
    std::vector<double> doubles(10, 1.0);
    std::vector<float> twice(20, 1.0F);
    const Buffer f = as_buffer(std::span(floats));
    const Buffer d = as_buffer(std::span(doubles));
    const Buffer t = as_buffer(std::span(twice));
    using Buffers = std::vector<Buffer>;
    const auto refuses = [](auto call, const std::string& words) {
      EXPECT_THAT(call, ::testing::ThrowsMessage<Error>(HasSubstr(words)));
    };
    refuses([&] { group.all_reduce_coalesced(Buffers{f, d}); }, "buffers[1]");
    refuses([&] { group.all_gather_coalesced(Buffers{f}, Buffers{t, t}); },
            "different numbers of buffers: 1 and 2");
    refuses([&] { group.all_gather_coalesced(Buffers{f}, Buffers{f}); }, "out[0]");
    refuses([&] { group.all_gather_coalesced(Buffers{f}, Buffers{t}, {.counts = {10, 10}}); },
            "counts must be empty");
    refuses([&] { group.reduce_scatter_coalesced(Buffers{f}, Buffers{f}); }, "in[0]");
    const Buffer middle{.data = twice.data() + 5, .count = 10, .dtype = DType::kFloat32};
    refuses([&] { group.all_reduce_coalesced(Buffers{t, middle}); }, "overlap");
    refuses([&] { group.all_gather_coalesced(Buffers{middle}, Buffers{t}); }, "overlap");
    refuses([&] { group.reduce_scatter_coalesced(Buffers{t}, Buffers{middle}); }, "overlap");
    refuses([&] { group.all_reduce_coalesced(Buffers{f}, {.op = kBxor}); }, "bxor");
    group.all_reduce_coalesced(Buffers{f});
    EXPECT_EQ(floats.front(), 2.0F);
  });
}

}  // namespace
}  // namespace unisono
