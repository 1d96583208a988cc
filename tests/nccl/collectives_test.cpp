// Operations on GPUs have the same results as the native engine's operations on CPUs. The sums of
// the tested numbers do not depend on the order.
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/reduction.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

#include "on_gpu.h"

namespace unisono {
namespace {

using test::nccl_world;
using test::on_gpu;
using test::run_ranks;

// Returns small numbers that differ between ranks.
std::vector<float> numbers(int rank, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), static_cast<float>(10 * rank + 1));
  return values;
}

using Place = std::function<Buffer(std::vector<float>& values)>;
using CallOperation = std::function<void(
    ProcessGroup& group, const Place& place, std::vector<float>& in, std::vector<float>& out)>;

struct Case {
  std::string name;
  CallOperation call;
};

std::int64_t size_of_world(const ProcessGroup& group) {
  return group.world_size();
}

// Returns counts that grow by one element per rank.
std::vector<std::int64_t> growing(const ProcessGroup& group) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(group.world_size()));
  std::iota(counts.begin(), counts.end(), 1);
  return counts;
}

std::int64_t total(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

void reduce_all(ProcessGroup& group,
                const Place& place,
                std::vector<float>& in,
                std::vector<float>& out,
                ReduceKind kind) {
  in = numbers(group.rank(), 5);
  out.resize(5);
  group.all_reduce(place(in), place(out), {.op = ReduceOp(kind)});
}

// Returns the parts of `whole` in descending order, so that the parts are not contiguous.
std::vector<Buffer> backwards(const Buffer& whole, const std::vector<std::int64_t>& counts) {
  std::vector<Buffer> blocks;
  std::int64_t end = whole.count;
  for (const std::int64_t count : counts) {
    end -= count;
    Buffer block = whole;
    block.data = static_cast<float*>(whole.data) + end;
    block.count = count;
    blocks.push_back(block);
  }
  return blocks;
}

const std::vector<Case> kCases{
    {"all_reduce_sum",
     [](auto& group, auto& place, auto& in, auto& out) {
       reduce_all(group, place, in, out, ReduceKind::kSum);
     }},
    {"all_reduce_max",
     [](auto& group, auto& place, auto& in, auto& out) {
       reduce_all(group, place, in, out, ReduceKind::kMax);
     }},
    {"all_reduce_min",
     [](auto& group, auto& place, auto& in, auto& out) {
       reduce_all(group, place, in, out, ReduceKind::kMin);
     }},
    {"all_reduce_product",
     [](auto& group, auto& place, auto& in, auto& out) {
       reduce_all(group, place, in, out, ReduceKind::kProduct);
     }},
    {"all_reduce_avg",
     [](auto& group, auto& place, auto& in, auto& out) {
       reduce_all(group, place, in, out, ReduceKind::kAvg);
     }},
    {"all_reduce_in_place",
     [](auto& group, auto& place, auto& /*in*/, auto& out) {
       out = numbers(group.rank(), 7);
       group.all_reduce(place(out));
     }},
    {"all_reduce_coalesced",
     [](auto& group, auto& place, auto& in, auto& out) {
       in = numbers(group.rank(), 3);
       out = numbers(group.rank(), 9);
       group.all_reduce_coalesced(std::vector<Buffer>{place(in), place(out)});
     }},
    {"reduce",
     [](auto& group, auto& place, auto& in, auto& out) {
       const int root = group.world_size() - 1;
       in = numbers(group.rank(), 4);
       out.resize(4);
       group.reduce(place(in), group.rank() == root ? place(out) : Buffer{}, {.root = root});
     }},
    {"broadcast",
     [](auto& group, auto& place, auto& /*in*/, auto& out) {
       out = numbers(group.rank(), 6);
       group.broadcast(place(out), {.root = group.world_size() - 1});
     }},
    {"all_gather",
     [](auto& group, auto& place, auto& in, auto& out) {
       in = numbers(group.rank(), 3);
       out.resize(static_cast<std::size_t>(3 * size_of_world(group)));
       group.all_gather(place(in), place(out));
     }},
    {"all_gather_of_uneven_blocks",
     [](auto& group, auto& place, auto& in, auto& out) {
       const auto counts = growing(group);
       in = numbers(group.rank(), group.rank() + 1);
       out.resize(static_cast<std::size_t>(total(counts)));
       group.all_gather(place(in), place(out), {.counts = counts});
     }},
    {"all_gather_into_a_list",
     [](auto& group, auto& place, auto& in, auto& out) {
       const std::vector<std::int64_t> counts(static_cast<std::size_t>(group.world_size()), 2);
       in = numbers(group.rank(), 2);
       out.resize(static_cast<std::size_t>(total(counts)));
       group.all_gather(place(in), backwards(place(out), counts));
     }},
    {"all_gather_coalesced",
     [](auto& group, auto& place, auto& in, auto& out) {
       in = numbers(group.rank(), 2);
       std::vector<float> second = numbers(group.rank() + 5, 3);
       out.resize(static_cast<std::size_t>(2 * size_of_world(group)));
       std::vector<float> other(static_cast<std::size_t>(3 * size_of_world(group)));
       group.all_gather_coalesced(std::vector<Buffer>{place(in), place(second)},
                                  std::vector<Buffer>{place(out), place(other)});
       out.insert(out.end(), other.begin(), other.end());
     }},
    {"reduce_scatter",
     [](auto& group, auto& place, auto& in, auto& out) {
       in = numbers(group.rank(), 2 * size_of_world(group));
       out.resize(2);
       group.reduce_scatter(place(in), place(out));
     }},
    {"reduce_scatter_of_uneven_blocks",
     [](auto& group, auto& place, auto& in, auto& out) {
       const auto counts = growing(group);
       in = numbers(group.rank(), total(counts));
       out.resize(static_cast<std::size_t>(group.rank() + 1));
       group.reduce_scatter(place(in), place(out), {.counts = counts});
     }},
    {"reduce_scatter_of_a_list",
     [](auto& group, auto& place, auto& in, auto& out) {
       const std::vector<std::int64_t> counts(static_cast<std::size_t>(group.world_size()), 2);
       in = numbers(group.rank(), total(counts));
       out.resize(2);
       group.reduce_scatter(backwards(place(in), counts), place(out));
     }},
    {"reduce_scatter_coalesced",
     [](auto& group, auto& place, auto& in, auto& out) {
       in = numbers(group.rank(), 3 * size_of_world(group));
       out.resize(3);
       group.reduce_scatter_coalesced(std::vector<Buffer>{place(in)},
                                      std::vector<Buffer>{place(out)});
     }},
    {"gather",
     [](auto& group, auto& place, auto& in, auto& out) {
       const int root = group.world_size() - 1;
       in = numbers(group.rank(), 3);
       out.resize(static_cast<std::size_t>(3 * size_of_world(group)));
       group.gather(place(in), group.rank() == root ? place(out) : Buffer{}, {.root = root});
     }},
    {"scatter",
     [](auto& group, auto& place, auto& in, auto& out) {
       const int root = group.world_size() - 1;
       in = numbers(group.rank(), 3 * size_of_world(group));
       out.resize(3);
       group.scatter(group.rank() == root ? place(in) : Buffer{}, place(out), {.root = root});
     }},
    {"all_to_all",
     [](auto& group, auto& place, auto& in, auto& out) {
       in = numbers(group.rank(), 2 * size_of_world(group));
       out.resize(in.size());
       group.all_to_all(place(in), place(out));
     }},
    {"all_to_all_of_uneven_blocks",
     [](auto& group, auto& place, auto& in, auto& out) {
       // Rank r receives r + 1 elements from every rank.
       const auto counts = growing(group);
       in = numbers(group.rank(), total(counts));
       const std::vector<std::int64_t> own(counts.size(), group.rank() + 1);
       out.resize(static_cast<std::size_t>(total(own)));
       group.all_to_all(place(in), place(out), {.in_counts = counts, .out_counts = own});
     }},
};

class NcclCollectives : public ::testing::TestWithParam<int> {};

TEST_P(NcclCollectives, GiveWhatTheNativeEngineGives) {
  run_ranks(nccl_world(GetParam()), [&](ProcessGroup& group) {
    const Place gpu = [&](std::vector<float>& values) { return on_gpu(values, group.rank()); };
    const Place cpu = [](std::vector<float>& values) { return as_buffer(std::span(values)); };
    for (const Case& one : kCases) {
      std::vector<float> in;
      std::vector<float> out;
      one.call(group, gpu, in, out);
      std::vector<float> expected_in;
      std::vector<float> expected_out;
      one.call(group, cpu, expected_in, expected_out);
      EXPECT_EQ(out, expected_out) << one.name << " on rank " << group.rank();
      EXPECT_EQ(in, expected_in) << one.name << " on rank " << group.rank();
    }
    group.barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, NcclCollectives, ::testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace unisono
