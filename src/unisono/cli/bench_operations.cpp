#include "unisono/cli/bench_operations.h"

#include <fmt/format.h>

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

Counts no_elements(Place /*place*/, std::int64_t /*n_elems*/) {
  return {};
}

Counts same_everywhere(Place /*place*/, std::int64_t n_elems) {
  return {.in = n_elems, .out = n_elems};
}

Origin sum_of_ranks(Place /*place*/, std::int64_t /*n_scalars*/, std::int64_t index) {
  return {.rank = Origin::kSumOfRanks, .index = index};
}

Origin from_rank_0(Place /*place*/, std::int64_t /*n_scalars*/, std::int64_t index) {
  return {.rank = 0, .index = index};
}

// A new operation is one row here.
constexpr std::array kOperations{
    Operation{
        .name = "all_reduce",
        .extent = Extent::kVector,
        .is_in_place = true,
        .adds_up = true,
        .has_algorithm = true,
        .n_transfers = 1,
        .bus_factor = [](double n) { return 2 * (n - 1) / n; },
        .counts = same_everywhere,
        .call = [](ProcessGroup& group,
                   const Call& call) { group.all_reduce(call.out, {.algorithm = call.algorithm}); },
        .origin = sum_of_ranks},
    Operation{.name = "broadcast",
              .extent = Extent::kVector,
              .is_in_place = true,
              .adds_up = false,
              .has_algorithm = false,
              .n_transfers = 1,
              .bus_factor = factor_of_one,
              .counts = same_everywhere,
              .call = [](ProcessGroup& group, const Call& call) { group.broadcast(call.out); },
              .origin = from_rank_0},
    Operation{.name = "barrier",
              .extent = Extent::kNone,
              .is_in_place = true,
              .adds_up = false,
              .has_algorithm = false,
              .n_transfers = 1,
              .bus_factor = factor_of_one,
              .counts = no_elements,
              .call = [](ProcessGroup& group, const Call& /*call*/) { group.barrier(); },
              .origin = from_rank_0},
};

}  // namespace

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
    if (algorithm != Algorithm::kAuto && !operation.has_algorithm) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("bench: {} lets nobody choose an algorithm", name));
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
