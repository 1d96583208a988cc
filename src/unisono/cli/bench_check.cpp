#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>

#include "unisono/base/buffer.h"
#include "unisono/base/dtype.h"
#include "unisono/cli/bench_operations.h"
#include "unisono/cli/bench_pattern.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/rendezvous/roster/roster.h"

namespace unisono::cli::bench {
namespace {

// Two in a row, with other data, so that what the first left behind is no right answer.
constexpr std::uint64_t kCheckedCalls = 2;
constexpr int kCheckedBarriers = 20;

std::int64_t scalars_of(const Buffer& buffer) {
  const bool is_complex = buffer.dtype == DType::kComplex64 || buffer.dtype == DType::kComplex128;
  return is_complex ? 2 * buffer.count : buffer.count;
}

std::int64_t check_data(ProcessGroup& group, const Operation& operation, const Call& call) {
  const Place place{.rank = group.rank(), .world_size = group.world_size()};
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

bool is_one_machine(const rendezvous::Roster& roster) {
  return std::ranges::all_of(roster.members, [&](const rendezvous::Member& member) {
    return member.host == roster.self().host;
  });
}

std::int64_t nanoseconds_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Nobody may leave before the last has come, whoever that is.
std::int64_t check_barrier(ProcessGroup& group, const Operation& operation, const Call& call) {
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
                                  const Operation& operation,
                                  const Call& call) {
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
