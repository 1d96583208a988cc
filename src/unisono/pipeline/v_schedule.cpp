#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "unisono/pipeline/as_index.h"
#include "unisono/pipeline/fill_with_weights.h"
#include "unisono/pipeline/generators.h"
#include "unisono/pipeline/placement.h"
#include "unisono/pipeline/schedule.h"

namespace unisono::pipeline {
namespace {

// How one chunk goes through all stages, on a clock that ticks once for each action; the next chunk
// does the same 6 ticks later, as a rank has 6 actions of each. The longer a chunk is on the way,
// the more of them are at the same time, and the more memory that takes.
struct Block {
  // Ticks from a rank to the next: forward to the last rank and back, backward likewise.
  std::array<int, 4> steps;
  // Ticks between these four ways, such that no two actions of a rank fall on the same tick,
  // whatever their chunks: modulo 6 they differ.
  std::array<int, 3> turns;
};

constexpr std::int64_t kTicksPerChunk = 6;

Block block_of(VMemory memory, int n_ranks) {
  switch (memory) {
    case VMemory::kMin:
      return {.steps = {1, 1, 1, 1},
              .turns = n_ranks % 3 == 0 ? std::array{3, 1, 3} : std::array{1, 1, 1}};
    case VMemory::kHalf:
      return {.steps = {2, 1, 2, 1},
              .turns = n_ranks % 2 == 0 ? std::array{4, 1, 5} : std::array{1, 1, 2}};
    case VMemory::kFull:
      break;
  }
  return {.steps = {4, 2, 4, 2}, .turns = {1, 1, 1}};
}

int max_activations(VMemory memory, int n_ranks) {
  switch (memory) {
    case VMemory::kMin:
      return 2 + 2 * ((n_ranks + 1) / 3);  // Half of it: 1 + ceil((n_ranks - 1) / 3).
    case VMemory::kHalf:
      return n_ranks + (n_ranks % 2 == 0 ? 2 : 1);
    case VMemory::kFull:
      break;
  }
  return 2 * n_ranks;
}

// An action of the first chunk, and its tick.
struct Tick {
  std::int64_t time;
  Action action;
};

std::vector<Tick> ticks_of_first_chunk(const Block& block, int n_ranks) {
  std::vector<Tick> ticks;
  std::int64_t time = 0;
  for (int way = 0; way < 4; ++way) {
    const bool is_forward = way < 2;
    for (int step = 0; step < n_ranks; ++step) {
      const int passed = way % 2 * n_ranks + step;
      const int stage = is_forward ? passed : 2 * n_ranks - 1 - passed;
      ticks.push_back(
          {.time = time + std::int64_t{block.steps[as_index(way)]} * step,
           .action = {.kind = is_forward ? ActionKind::kForward : ActionKind::kBackwardInput,
                      .stage = stage,
                      .chunk = 0}});
    }
    time = ticks.back().time + (way < 3 ? block.turns[as_index(way)] : 0);
  }
  return ticks;
}

}  // namespace

Schedule v_schedule(int n_ranks, int n_chunks, VMemory memory) {
  check_n_chunks(n_chunks);
  Schedule schedule{.n_chunks = n_chunks, .rank_of_stage = v_placement(n_ranks), .orders = {}};
  std::vector<std::vector<Tick>> ticks_of_rank(as_index(n_ranks));
  for (Tick tick : ticks_of_first_chunk(block_of(memory, n_ranks), n_ranks)) {
    const int rank = schedule.rank_of_stage[as_index(tick.action.stage)];
    for (int chunk = 0; chunk < n_chunks; ++chunk) {
      tick.action.chunk = chunk;
      ticks_of_rank[as_index(rank)].push_back(tick);
      tick.time += kTicksPerChunk;
    }
  }
  for (std::vector<Tick>& ticks : ticks_of_rank) {
    std::sort(
        ticks.begin(), ticks.end(), [](const Tick& a, const Tick& b) { return a.time < b.time; });
    std::vector<Action>& order = schedule.orders.emplace_back();
    for (const Tick& tick : ticks) {
      order.push_back(tick.action);
    }
  }
  return fill_with_weights(schedule, max_activations(memory, n_ranks));
}

}  // namespace unisono::pipeline
