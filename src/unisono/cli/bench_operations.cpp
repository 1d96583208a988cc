#include "unisono/cli/bench_operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/algorithm.h"
#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"

namespace unisono::cli::bench {
namespace {

double factor_of_one(double /*world_size*/) {
  return 1;
}

// The share of the whole that a rank gets from the others, or hands to them.
double share_of_others(double world_size) {
  return (world_size - 1) / world_size;
}

Counts no_elements(Place /*place*/, std::int64_t /*n_elems*/) {
  return {};
}

Counts same_everywhere(Place /*place*/, std::int64_t n_elems) {
  return {.in = n_elems, .out = n_elems};
}

Counts result_on_rank_0(Place place, std::int64_t n_elems) {
  return {.in = n_elems, .out = place.rank == 0 ? n_elems : 0};
}

Counts whole_from_chunks(Place place, std::int64_t n_elems) {
  return {.in = n_elems / place.world_size, .out = n_elems};
}

Counts whole_on_rank_0(Place place, std::int64_t n_elems) {
  return {.in = n_elems / place.world_size, .out = place.rank == 0 ? n_elems : 0};
}

Counts chunk_from_rank_0(Place place, std::int64_t n_elems) {
  return {.in = place.rank == 0 ? n_elems : 0, .out = n_elems / place.world_size};
}

Counts chunk_from_whole(Place place, std::int64_t n_elems) {
  return {.in = n_elems, .out = n_elems / place.world_size};
}

// Rank 0 and the last, which are on different nodes where there are several.
Counts at_both_ends(Place place, std::int64_t n_elems) {
  const bool takes_part = place.rank == 0 || place.rank == place.world_size - 1;
  return takes_part ? same_everywhere(place, n_elems) : Counts{};
}

Origin sum_of_ranks(Place /*place*/, std::int64_t /*n_scalars*/, std::int64_t index) {
  return {.rank = Origin::kSumOfRanks, .index = index};
}

Origin from_rank_0(Place /*place*/, std::int64_t /*n_scalars*/, std::int64_t index) {
  return {.rank = 0, .index = index};
}

// The chunks of the ranks, one behind the other.
Origin chunk_of_each_rank(Place place, std::int64_t n_scalars, std::int64_t index) {
  const std::int64_t chunk = n_scalars / place.world_size;
  return {.rank = static_cast<int>(index / chunk), .index = index % chunk};
}

Origin own_chunk_of_rank_0(Place place, std::int64_t n_scalars, std::int64_t index) {
  return {.rank = 0, .index = place.rank * n_scalars + index};
}

Origin own_chunk_of_sum(Place place, std::int64_t n_scalars, std::int64_t index) {
  return {.rank = Origin::kSumOfRanks, .index = place.rank * n_scalars + index};
}

// From each rank the chunk that it has for this one.
Origin own_chunk_of_each_rank(Place place, std::int64_t n_scalars, std::int64_t index) {
  const std::int64_t chunk = n_scalars / place.world_size;
  return {.rank = static_cast<int>(index / chunk), .index = place.rank * chunk + index % chunk};
}

void ping_pong(ProcessGroup& group, const Call& call) {
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

// A new operation is one row here.
constexpr std::array kOperations{
    Operation{
        .name = "all_reduce",
        .extent = Extent::kVector,
        .is_in_place = true,
        .adds_up = true,
        .algorithms = kAlgorithms,
        .bus_factor = [](double n) { return 2 * (n - 1) / n; },
        .counts = same_everywhere,
        .call = [](ProcessGroup& group,
                   const Call& call) { group.all_reduce(call.out, {.algorithm = call.algorithm}); },
        .origin = sum_of_ranks},
    Operation{.name = "broadcast",
              .extent = Extent::kVector,
              .is_in_place = true,
              .bus_factor = factor_of_one,
              .counts = same_everywhere,
              .call = [](ProcessGroup& group, const Call& call) { group.broadcast(call.out); },
              .origin = from_rank_0},
    Operation{.name = "reduce",
              .extent = Extent::kVector,
              .adds_up = true,
              .algorithms = kShots,
              .bus_factor = factor_of_one,
              .counts = result_on_rank_0,
              .call =
                  [](ProcessGroup& group, const Call& call) {
                    group.reduce(call.in, call.out, {.algorithm = call.algorithm});
                  },
              .origin = sum_of_ranks},
    Operation{
        .name = "all_gather",
        .extent = Extent::kChunks,
        .bus_factor = share_of_others,
        .counts = whole_from_chunks,
        .call = [](ProcessGroup& group, const Call& call) { group.all_gather(call.in, call.out); },
        .origin = chunk_of_each_rank},
    Operation{
        .name = "gather",
        .extent = Extent::kChunks,
        .bus_factor = share_of_others,
        .counts = whole_on_rank_0,
        .call = [](ProcessGroup& group, const Call& call) { group.gather(call.in, call.out); },
        .origin = chunk_of_each_rank},
    Operation{
        .name = "scatter",
        .extent = Extent::kChunks,
        .bus_factor = share_of_others,
        .counts = chunk_from_rank_0,
        .call = [](ProcessGroup& group, const Call& call) { group.scatter(call.in, call.out); },
        .origin = own_chunk_of_rank_0},
    Operation{.name = "reduce_scatter",
              .extent = Extent::kChunks,
              .adds_up = true,
              .algorithms = kShots,
              .bus_factor = share_of_others,
              .counts = chunk_from_whole,
              .call =
                  [](ProcessGroup& group, const Call& call) {
                    group.reduce_scatter(call.in, call.out, {.algorithm = call.algorithm});
                  },
              .origin = own_chunk_of_sum},
    Operation{
        .name = "all_to_all",
        .extent = Extent::kChunks,
        .bus_factor = share_of_others,
        .counts = same_everywhere,
        .call = [](ProcessGroup& group, const Call& call) { group.all_to_all(call.in, call.out); },
        .origin = own_chunk_of_each_rank},
    Operation{.name = "barrier",
              .extent = Extent::kNone,
              .is_in_place = true,
              .bus_factor = factor_of_one,
              .counts = no_elements,
              .call = [](ProcessGroup& group, const Call& /*call*/) { group.barrier(); },
              .origin = from_rank_0},
    Operation{.name = "sendrecv",
              .extent = Extent::kVector,
              .min_ranks = 2,
              .n_transfers = 2,
              .bus_factor = factor_of_one,
              .counts = at_both_ends,
              .call = ping_pong,
              .origin = from_rank_0},
};

}  // namespace

Algorithm algorithm_of(const Operation& operation, Algorithm wanted) {
  const bool has_it = std::ranges::find(operation.algorithms, wanted) != operation.algorithms.end();
  return has_it ? wanted : Algorithm::kAuto;
}

std::string names_without(std::span<const Operation> operations, Algorithm wanted) {
  std::string names;
  for (const Operation& operation : operations) {
    if (algorithm_of(operation, wanted) != wanted) {
      names += (names.empty() ? "" : ", ") + std::string(operation.name);
    }
  }
  return names;
}

std::span<const Operation> operation_table() {
  return kOperations;
}

std::span<const Operation> find_operations(const std::string& name, Algorithm algorithm) {
  if (name == "all") {
    return kOperations;
  }
  std::string names;
  for (std::size_t index = 0; index < kOperations.size(); ++index) {
    const Operation& operation = kOperations[index];
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

std::int64_t count_elements(const Operation& operation,
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

}  // namespace unisono::cli::bench
