#include "unisono/cli/bench_operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/cli/bench_pattern.h"
#include "unisono/comm/options.h"
#include "unisono/transport/rank_table.h"

namespace unisono::cli::bench {
namespace {

double factor_of_one(double /*world_size*/) {
  return 1;
}

// The share of the whole that a rank exchanges with other ranks.
double share_of_others(double world_size) {
  return (world_size - 1) / world_size;
}

Counts no_elements(RankPlace /*place*/, std::int64_t /*n_elems*/) {
  return {};
}

Counts same_everywhere(RankPlace /*place*/, std::int64_t n_elems) {
  return {.in = n_elems, .out = n_elems};
}

Counts result_on_rank_0(RankPlace place, std::int64_t n_elems) {
  return {.in = n_elems, .out = place.rank == 0 ? n_elems : 0};
}

Counts whole_from_chunks(RankPlace place, std::int64_t n_elems) {
  return {.in = n_elems / place.world_size, .out = n_elems};
}

Counts whole_on_rank_0(RankPlace place, std::int64_t n_elems) {
  return {.in = n_elems / place.world_size, .out = place.rank == 0 ? n_elems : 0};
}

Counts chunk_from_rank_0(RankPlace place, std::int64_t n_elems) {
  return {.in = place.rank == 0 ? n_elems : 0, .out = n_elems / place.world_size};
}

Counts chunk_from_whole(RankPlace place, std::int64_t n_elems) {
  return {.in = n_elems, .out = n_elems / place.world_size};
}

// Rank 0 and the last rank take part; with several nodes they are on different nodes.
Counts at_both_ends(RankPlace place, std::int64_t n_elems) {
  const bool takes_part = place.rank == 0 || place.rank == place.world_size - 1;
  return takes_part ? same_everywhere(place, n_elems) : Counts{};
}

Origin sum_of_ranks(RankPlace /*place*/, std::int64_t /*n_scalars*/, std::int64_t index) {
  return {.rank = Origin::kSumOfRanks, .index = index};
}

Origin from_rank_0(RankPlace /*place*/, std::int64_t /*n_scalars*/, std::int64_t index) {
  return {.rank = 0, .index = index};
}

// The chunks of the ranks, in rank order.
Origin chunk_of_each_rank(RankPlace place, std::int64_t n_scalars, std::int64_t index) {
  const std::int64_t chunk = n_scalars / place.world_size;
  return {.rank = static_cast<int>(index / chunk), .index = index % chunk};
}

Origin own_chunk_of_rank_0(RankPlace place, std::int64_t n_scalars, std::int64_t index) {
  return {.rank = 0, .index = place.rank * n_scalars + index};
}

Origin own_chunk_of_sum(RankPlace place, std::int64_t n_scalars, std::int64_t index) {
  return {.rank = Origin::kSumOfRanks, .index = place.rank * n_scalars + index};
}

// From each rank, the chunk that is meant for this rank.
Origin own_chunk_of_each_rank(RankPlace place, std::int64_t n_scalars, std::int64_t index) {
  const std::int64_t chunk = n_scalars / place.world_size;
  return {.rank = static_cast<int>(index / chunk), .index = place.rank * chunk + index % chunk};
}

void ping_pong(ProcessGroup& group, const BenchCall& call) {
  const int last = group.world_size() - 1;
  if (group.rank() == 0) {
    group.send(call.in, last);
    group.recv(call.out, last);
  } else if (group.rank() == last) {
    group.recv(call.out, 0);
    group.send(call.out, 0);
  }
}

constexpr std::array kShots{Algorithm::kOneShot, Algorithm::kTwoShot};

// Table of the operations; a new operation is a row.
constexpr std::array kOperations{
    BenchOperation{.name = "all_reduce",
                   .extent = Extent::kVector,
                   .is_in_place = true,
                   .adds_up = true,
                   .algorithms = kAlgorithms,
                   .bus_factor = [](double n) { return 2 * (n - 1) / n; },
                   .counts = same_everywhere,
                   .call =
                       [](ProcessGroup& group, const BenchCall& call) {
                         group.all_reduce(call.out, {.algorithm = call.algorithm});
                       },
                   .origin = sum_of_ranks},
    BenchOperation{
        .name = "broadcast",
        .extent = Extent::kVector,
        .is_in_place = true,
        .bus_factor = factor_of_one,
        .counts = same_everywhere,
        .call = [](ProcessGroup& group, const BenchCall& call) { group.broadcast(call.out); },
        .origin = from_rank_0},
    BenchOperation{.name = "reduce",
                   .extent = Extent::kVector,
                   .adds_up = true,
                   .algorithms = kShots,
                   .bus_factor = factor_of_one,
                   .counts = result_on_rank_0,
                   .call =
                       [](ProcessGroup& group, const BenchCall& call) {
                         group.reduce(call.in, call.out, {.algorithm = call.algorithm});
                       },
                   .origin = sum_of_ranks},
    BenchOperation{.name = "all_gather",
                   .extent = Extent::kChunks,
                   .bus_factor = share_of_others,
                   .counts = whole_from_chunks,
                   .call = [](ProcessGroup& group,
                              const BenchCall& call) { group.all_gather(call.in, call.out); },
                   .origin = chunk_of_each_rank},
    BenchOperation{
        .name = "gather",
        .extent = Extent::kChunks,
        .bus_factor = share_of_others,
        .counts = whole_on_rank_0,
        .call = [](ProcessGroup& group, const BenchCall& call) { group.gather(call.in, call.out); },
        .origin = chunk_of_each_rank},
    BenchOperation{.name = "scatter",
                   .extent = Extent::kChunks,
                   .bus_factor = share_of_others,
                   .counts = chunk_from_rank_0,
                   .call = [](ProcessGroup& group,
                              const BenchCall& call) { group.scatter(call.in, call.out); },
                   .origin = own_chunk_of_rank_0},
    BenchOperation{.name = "reduce_scatter",
                   .extent = Extent::kChunks,
                   .adds_up = true,
                   .algorithms = kShots,
                   .bus_factor = share_of_others,
                   .counts = chunk_from_whole,
                   .call =
                       [](ProcessGroup& group, const BenchCall& call) {
                         group.reduce_scatter(call.in, call.out, {.algorithm = call.algorithm});
                       },
                   .origin = own_chunk_of_sum},
    BenchOperation{.name = "all_to_all",
                   .extent = Extent::kChunks,
                   .bus_factor = share_of_others,
                   .counts = same_everywhere,
                   .call = [](ProcessGroup& group,
                              const BenchCall& call) { group.all_to_all(call.in, call.out); },
                   .origin = own_chunk_of_each_rank},
    BenchOperation{.name = "barrier",
                   .extent = Extent::kNone,
                   .is_in_place = true,
                   .bus_factor = factor_of_one,
                   .counts = no_elements,
                   .call = [](ProcessGroup& group, const BenchCall& /*call*/) { group.barrier(); },
                   .origin = from_rank_0},
    BenchOperation{.name = "sendrecv",
                   .extent = Extent::kVector,
                   .min_ranks = 2,
                   .n_transfers = 2,
                   .bus_factor = factor_of_one,
                   .counts = at_both_ends,
                   .call = ping_pong,
                   .origin = from_rank_0},
};

}  // namespace

Algorithm algorithm_of(const BenchOperation& operation, Algorithm wanted) {
  const bool has_it = std::ranges::find(operation.algorithms, wanted) != operation.algorithms.end();
  return has_it ? wanted : Algorithm::kAuto;
}

std::string names_without(std::span<const BenchOperation> operations, Algorithm wanted) {
  std::string names;
  for (const BenchOperation& operation : operations) {
    if (algorithm_of(operation, wanted) != wanted) {
      names += (names.empty() ? "" : ", ") + std::string(operation.name);
    }
  }
  return names;
}

std::span<const BenchOperation> operation_table() {
  return kOperations;
}

std::span<const BenchOperation> find_operations(const std::string& name, Algorithm algorithm) {
  if (name == "all") {
    return kOperations;
  }
  std::string names;
  for (std::size_t index = 0; index < kOperations.size(); ++index) {
    const BenchOperation& operation = kOperations[index];
    if (name != operation.name) {
      names += fmt::format("{}, ", operation.name);
      continue;
    }
    if (algorithm_of(operation, algorithm) != algorithm) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("bench: {} has no algorithm {}", name, to_string(algorithm)));
    }
    return std::span(kOperations).subspan(index, 1);
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("bench: there is no operation \"{}\"; there are {}all", name, names));
}

std::int64_t count_elements(const BenchOperation& operation,
                            std::int64_t n_bytes,
                            DType dtype,
                            int world_size) {
  if (operation.extent == Extent::kNone) {
    return 0;
  }
  const auto element_bytes = static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t n_chunks = operation.extent == Extent::kChunks ? world_size : 1;
  const std::int64_t step = element_bytes * n_chunks;
  return (n_bytes + step - 1) / step * n_chunks;
}

namespace {

// Two calls with different data, so that the remains of the first call are not a correct answer for
// the second.
constexpr std::uint64_t kCheckedCalls = 2;
constexpr int kCheckedBarriers = 20;

std::int64_t scalars_of(const Buffer& buffer) {
  const bool is_complex = buffer.dtype == DType::kComplex64 || buffer.dtype == DType::kComplex128;
  return is_complex ? 2 * buffer.count : buffer.count;
}

std::int64_t check_data(ProcessGroup& group,
                        const BenchOperation& operation,
                        const BenchCall& call) {
  const RankPlace place{.rank = group.rank(), .world_size = group.world_size()};
  const std::int64_t n_scalars = scalars_of(call.out);
  std::int64_t n_wrong = 0;
  for (std::uint64_t seed = 0; seed < kCheckedCalls; ++seed) {
    const Pattern pattern(place.world_size, operation.adds_up, seed);
    poison(call.out);
    fill(call.in, [&](std::int64_t index) { return pattern.value(place.rank, index); });
    operation.call(group, call);
    n_wrong += count_wrong(call.out, [&](std::int64_t index) {
      const Origin origin = operation.origin(place, n_scalars, index);
      return origin.rank == Origin::kSumOfRanks ? pattern.sum(origin.index)
                                                : pattern.value(origin.rank, origin.index);
    });
  }
  return n_wrong;
}

bool is_one_machine(const transport::RankTable& roster) {
  return std::ranges::all_of(roster.members, [&](const transport::Member& member) {
    return member.host == roster.self().host;
  });
}

std::int64_t nanoseconds_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// A barrier is correct if no rank leaves before the last rank has entered. The late rank changes
// from round to round.
std::int64_t check_barrier(ProcessGroup& group,
                           const BenchOperation& operation,
                           const BenchCall& call) {
  constexpr std::chrono::microseconds kLate{200};
  std::int64_t n_wrong = 0;
  for (int round = 0; round < kCheckedBarriers; ++round) {
    if (round % group.world_size() == group.rank()) {
      const auto end = std::chrono::steady_clock::now() + kLate;
      while (std::chrono::steady_clock::now() < end) {
      }
    }
    std::int64_t last_entry = nanoseconds_now();
    operation.call(group, call);
    const std::int64_t left = nanoseconds_now();
    group.all_reduce(as_buffer(std::span(&last_entry, 1)), {.op = kMax});
    n_wrong += left < last_entry ? 1 : 0;
  }
  return n_wrong;
}

}  // namespace

std::optional<std::int64_t> check(ProcessGroup& group,
                                  const BenchOperation& operation,
                                  const BenchCall& call) {
  const bool is_barrier = operation.extent == Extent::kNone;
  if (is_barrier && !is_one_machine(group.roster())) {
    return std::nullopt;
  }
  std::int64_t n_wrong =
      is_barrier ? check_barrier(group, operation, call) : check_data(group, operation, call);
  group.all_reduce(as_buffer(std::span(&n_wrong, 1)), {.op = kSum});
  return n_wrong;
}

}  // namespace unisono::cli::bench
