#include <algorithm>
#include <cstdint>
#include <vector>

#include "unisono/pipeline/as_index.h"
#include "unisono/pipeline/generators.h"
#include "unisono/pipeline/placement.h"
#include "unisono/pipeline/schedule.h"

namespace unisono::pipeline {
namespace {

// Which of a rank's stages takes which chunk, one after the other.
struct Turn {
  int place_of_stage;  // Among the rank's.
  int chunk;
};

// Chunks go round in so many, as equal as they can be, and where possible no fewer than there are
// ranks: a chunk is through all of them when its rank's next stage wants it.
int count_rounds(int n_ranks, int n_chunks) {
  return std::max(1, n_chunks / n_ranks);
}

int begin_of(int round, int n_rounds, int n_chunks) {
  return static_cast<int>(std::int64_t{round} * n_chunks / n_rounds);
}

std::vector<Turn> take_turns(int n_ranks, int n_chunks, int stages_per_rank, ActionKind kind) {
  std::vector<Turn> turns;
  const int n_rounds = count_rounds(n_ranks, n_chunks);
  for (int round = 0; round < n_rounds; ++round) {
    const int begin = begin_of(round, n_rounds, n_chunks);
    const int end = begin_of(round + 1, n_rounds, n_chunks);
    for (int turn = 0; turn < stages_per_rank; ++turn) {
      for (int chunk = begin; chunk < end; ++chunk) {
        turns.push_back(
            {.place_of_stage = kind == ActionKind::kForward ? turn : stages_per_rank - 1 - turn,
             .chunk = chunk});
      }
    }
  }
  return turns;
}

}  // namespace

Schedule interleaved(int n_ranks, int n_chunks, int stages_per_rank) {
  check_n_chunks(n_chunks);
  Schedule schedule{.n_chunks = n_chunks,
                    .rank_of_stage = loop_placement(n_ranks, stages_per_rank),
                    .orders = {}};
  const auto forwards = take_turns(n_ranks, n_chunks, stages_per_rank, ActionKind::kForward);
  const auto backwards = take_turns(n_ranks, n_chunks, stages_per_rank, ActionKind::kBackward);
  const int n_turns = static_cast<int>(forwards.size());
  const int n_rounds = count_rounds(n_ranks, n_chunks);
  const int longest_round = (n_chunks + n_rounds - 1) / n_rounds;
  for (int rank = 0; rank < n_ranks; ++rank) {
    std::vector<Action>& order = schedule.orders.emplace_back();
    const auto add = [&](ActionKind kind, const Turn& turn) {
      order.push_back(
          {.kind = kind, .stage = turn.place_of_stage * n_ranks + rank, .chunk = turn.chunk});
    };
    // What is forward before the first backward can come, besides its own: all rounds of the
    // rank's other stages, and what ranks behind are busy with.
    const int n_ahead = std::min(n_turns,
                                 (stages_per_rank - 1) * longest_round +
                                     (stages_per_rank > 1 ? 2 : 1) * (n_ranks - 1 - rank));
    for (int turn = 0; turn < n_ahead; ++turn) {
      add(ActionKind::kForward, forwards[as_index(turn)]);
    }
    for (int turn = 0; turn < n_turns; ++turn) {
      if (turn + n_ahead < n_turns) {
        add(ActionKind::kForward, forwards[as_index(turn + n_ahead)]);
      }
      add(ActionKind::kBackward, backwards[as_index(turn)]);
    }
  }
  return schedule;
}

}  // namespace unisono::pipeline
