// Data movement by MPI: between all ranks, of every type, in equal and unequal blocks, in
// contiguous and separate memory.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

#include "conformance/blocks.h"
#include "conformance/reference.h"
#include "rank.h"

namespace unisono::test {
namespace {

using Counts = std::vector<std::int64_t>;

// Calls `call` with equal and with unequal blocks of every type.
template <class Call>
void for_each_shape(Call call) {
  const int n = world()->world_size();
  for (int number = 0; number < kDTypeCount; ++number) {
    const auto dtype = static_cast<DType>(number);
    SCOPED_TRACE(to_string(dtype));
    call(dtype, Counts(static_cast<std::size_t>(n), 0));
    call(dtype, Counts(static_cast<std::size_t>(n), 5));
    call(dtype, Counts(static_cast<std::size_t>(n), 20'000));
    call(dtype, uneven_counts(n, 30, 1));
    call(dtype, uneven_counts(n, 3000, 2));
  }
}

std::vector<std::vector<std::byte>> contributions(DType dtype,
                                                  const Counts& counts,
                                                  unsigned seed) {
  std::vector<std::vector<std::byte>> parts;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    parts.push_back(contribution(dtype, counts[rank], static_cast<int>(rank), seed));
  }
  return parts;
}

// Returns separate memory for each rank's block, so that the blocks are not contiguous.
std::vector<TestMemory> memories(ProcessGroup& group, DType dtype, const Counts& counts) {
  std::vector<TestMemory> result;
  result.reserve(counts.size());
  for (const std::int64_t count : counts) {
    result.emplace_back(group, Memory::kPrivate, count, dtype);
  }
  return result;
}

std::vector<Buffer> buffers_of(const std::vector<TestMemory>& memories) {
  std::vector<Buffer> buffers;
  for (const TestMemory& memory : memories) {
    buffers.push_back(memory.buffer());
  }
  return buffers;
}

std::vector<std::byte> bytes_of_all(const std::vector<Buffer>& buffers) {
  std::vector<std::vector<std::byte>> parts;
  for (const Buffer& buffer : buffers) {
    parts.push_back(bytes_of(buffer));
  }
  return join(parts);
}

TEST(MpiMovement, BroadcastComesFromEachRoot) {
  ProcessGroup& group = *world();
  for_each_shape([&](DType dtype, const Counts& counts) {
    for (int root = 0; root < group.world_size(); ++root) {
      const auto bytes = contribution(dtype, counts[0], root, 4);
      const TestMemory memory = group.rank() == root
                                    ? TestMemory(group, Memory::kPrivate, dtype, bytes)
                                    : TestMemory(group, Memory::kPrivate, counts[0], dtype);
      group.broadcast(memory.buffer(), {.root = root});
      EXPECT_EQ(memory.bytes(), bytes);
    }
  });
}

TEST(MpiMovement, AllGatherIsInOrderOfRank) {
  ProcessGroup& group = *world();
  const auto rank = static_cast<std::size_t>(group.rank());
  for_each_shape([&](DType dtype, const Counts& counts) {
    const auto parts = contributions(dtype, counts, 5);
    const TestMemory in(group, Memory::kPrivate, dtype, parts[rank]);
    const TestMemory out(group, Memory::kPrivate, sum(counts), dtype);
    group.all_gather(in.buffer(), out.buffer(), {.counts = counts});
    EXPECT_EQ(out.bytes(), join(parts));
    const std::vector<Buffer> blocks = cut(out.buffer(), counts);
    group.all_gather(blocks[rank], blocks);  // In place.
    EXPECT_EQ(out.bytes(), join(parts));
    const auto apart = memories(group, dtype, counts);
    group.all_gather(in.buffer(), buffers_of(apart));
    EXPECT_EQ(bytes_of_all(buffers_of(apart)), join(parts));
  });
}

TEST(MpiMovement, GatherAndScatterAreForEachRoot) {
  ProcessGroup& group = *world();
  const auto rank = static_cast<std::size_t>(group.rank());
  for_each_shape([&](DType dtype, const Counts& counts) {
    const auto parts = contributions(dtype, counts, 6);
    for (int root = 0; root < group.world_size(); ++root) {
      const bool is_root = group.rank() == root;
      const TestMemory in(group, Memory::kPrivate, dtype, parts[rank]);
      const TestMemory whole(group, Memory::kPrivate, is_root ? sum(counts) : 0, dtype);
      const auto options = [&] { return GatherOptions{.root = root, .counts = counts}; };
      group.gather(in.buffer(), is_root ? whole.buffer() : Buffer{}, options());
      if (is_root) {
        EXPECT_EQ(whole.bytes(), join(parts));
      }
      const TestMemory out(group, Memory::kPrivate, counts[rank], dtype);
      group.scatter(is_root ? whole.buffer() : Buffer{}, out.buffer(), options());
      EXPECT_EQ(out.bytes(), parts[rank]);
      const auto apart = memories(group, dtype, is_root ? counts : Counts());
      group.gather(in.buffer(), buffers_of(apart), options());
      if (is_root) {
        EXPECT_EQ(bytes_of_all(buffers_of(apart)), join(parts));
      }
      const TestMemory again(group, Memory::kPrivate, counts[rank], dtype);
      group.scatter(buffers_of(apart),
                    // The root's block is in place.
                    is_root ? apart[rank].buffer() : again.buffer(),
                    options());
      EXPECT_EQ(is_root ? apart[rank].bytes() : again.bytes(), parts[rank]);
    }
  });
}

// Rank r's block for rank s has counts[s] elements if r is even, and counts[r] elements otherwise.
TEST(MpiMovement, AllToAllTransposesBlocks) {
  ProcessGroup& group = *world();
  const int n = group.world_size();
  for_each_shape([&](DType dtype, const Counts& counts) {
    const auto count = [&](int from, int to) {
      return counts[static_cast<std::size_t>(from % 2 == 0 ? to : from)];
    };
    const auto block = [&](int from, int to) {
      return contribution(dtype, count(from, to), from, 10 + static_cast<unsigned>(to));
    };
    Counts in_counts;
    Counts out_counts;
    std::vector<std::vector<std::byte>> sent;
    std::vector<std::vector<std::byte>> expected;
    for (int peer = 0; peer < n; ++peer) {
      in_counts.push_back(count(group.rank(), peer));
      out_counts.push_back(count(peer, group.rank()));
      sent.push_back(block(group.rank(), peer));
      expected.push_back(block(peer, group.rank()));
    }
    const TestMemory in(group, Memory::kPrivate, dtype, join(sent));
    const TestMemory out(group, Memory::kPrivate, sum(out_counts), dtype);
    group.all_to_all(in.buffer(), out.buffer(), {.in_counts = in_counts, .out_counts = out_counts});
    EXPECT_EQ(out.bytes(), join(expected));
    const auto apart = memories(group, dtype, out_counts);
    group.all_to_all(cut(in.buffer(), in_counts), buffers_of(apart));
    EXPECT_EQ(bytes_of_all(buffers_of(apart)), join(expected));
  });
}

TEST(MpiMovement, AllToAllOfEqualBlocks) {
  ProcessGroup& group = *world();
  std::vector<int> in(static_cast<std::size_t>(3 * group.world_size()));
  std::vector<int> out(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) {
    in[i] = 1000 * group.rank() + static_cast<int>(i);
  }
  group.all_to_all(as_buffer(std::span(in)), as_buffer(std::span(out)));
  for (int rank = 0; rank < group.world_size(); ++rank) {
    EXPECT_EQ(out[static_cast<std::size_t>(3 * rank + 1)], 1000 * rank + 3 * group.rank() + 1);
  }
}

TEST(MpiMovement, BarriersAndMessagesPass) {
  ProcessGroup& group = *world();
  group.barrier();
  group.monitored_barrier();
  group.barrier_async().wait();
  const int next = (group.rank() + 1) % group.world_size();
  const int previous = (group.rank() + group.world_size() - 1) % group.world_size();
  double mine = group.rank();
  double theirs = -1;
  const Work sent = group.send_async(as_buffer(std::span(&mine, 1)), next);
  EXPECT_EQ(group.recv(as_buffer(std::span(&theirs, 1)), previous), previous);
  sent.wait();
  EXPECT_EQ(theirs, previous);
}

}  // namespace
}  // namespace unisono::test
