#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/pipeline/known_schedules.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/pipeline/timeline.h"

namespace unisono::pipeline {
namespace {

void check_positive(int number, const char* what) {
  if (number < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("pipeline: {} {}: at least 1 is needed", number, what));
  }
}

// Places stage s on rank s mod `n_ranks`.
std::vector<int> loop_placement(int n_ranks, int stages_per_rank) {
  check_positive(n_ranks, "ranks");
  check_positive(stages_per_rank, "stages per rank");
  std::vector<int> rank_of_stage;
  for (int round = 0; round < stages_per_rank; ++round) {
    for (int rank = 0; rank < n_ranks; ++rank) {
      rank_of_stage.push_back(rank);
    }
  }
  return rank_of_stage;
}

// Places two stages on each rank: from rank 0 to the last rank and back.
std::vector<int> v_placement(int n_ranks) {
  std::vector<int> rank_of_stage = loop_placement(n_ranks, 1);
  for (int rank = n_ranks - 1; rank >= 0; --rank) {
    rank_of_stage.push_back(rank);
  }
  return rank_of_stage;
}

void check_n_chunks(int n_chunks) {
  check_positive(n_chunks, "chunks");
}

// State of a rank while fill_with_weights() runs the schedule.
class FilledRank {
 public:
  FilledRank(const std::vector<Action>& order, int max_activations)
      : waiting_(order.begin(), order.end()), max_activations_(max_activations) {}

  [[nodiscard]] bool is_over() const { return waiting_.empty() && delayed_.empty(); }

  // Returns the next action, or std::nullopt if the rank waits at time `now`.
  std::optional<Action> step(const Schedule& schedule, const FinishTimes& done, int now) {
    if (!waiting_.empty() && can_start(schedule, done, now)) {
      const Action action = waiting_.front();
      waiting_.pop_front();
      n_activations_ += change_of_activations(action.kind);
      if (action.kind == ActionKind::kBackwardInput) {
        delayed_.push_back(
            {.kind = ActionKind::kBackwardWeight, .stage = action.stage, .chunk = action.chunk});
      }
      return action;
    }
    if (delayed_.empty()) {
      return std::nullopt;
    }
    const Action action = delayed_.front();
    delayed_.pop_front();
    --n_activations_;
    return action;
  }

 private:
  [[nodiscard]] bool can_start(const Schedule& schedule, const FinishTimes& done, int now) const {
    const Action& action = waiting_.front();
    const bool has_room = action.kind != ActionKind::kForward || n_activations_ < max_activations_;
    return has_room && done.ready_at(action, schedule) <= now;
  }

  std::deque<Action> waiting_;
  std::deque<Action> delayed_;
  int n_activations_ = 0;
  int max_activations_;
};

// Inserts the weight gradients into a schedule without weight gradients. All ranks run with equal
// times for all actions. A rank that would wait, or that holds `max_activations`, computes the
// oldest missing weight gradients. The result can run, because this function has run the result.
//
// Throws Error(kInternal) for too few activations.
Schedule fill_with_weights(const Schedule& schedule, int max_activations) {
  Schedule filled = schedule;
  std::vector<FilledRank> ranks;
  for (std::vector<Action>& order : filled.orders) {
    ranks.emplace_back(order, max_activations);
    order.clear();
  }
  FinishTimes done(schedule.n_stages(), schedule.n_chunks);
  const auto is_over = [](const FilledRank& rank) { return rank.is_over(); };
  for (int now = 0; !std::all_of(ranks.begin(), ranks.end(), is_over); ++now) {
    bool is_going_on = false;
    for (int number = 0; number < schedule.n_ranks(); ++number) {
      if (const auto action = ranks[as_index(number)].step(schedule, done, now)) {
        done.set(*action, now + 1);
        filled.orders[as_index(number)].push_back(*action);
        is_going_on = true;
      }
    }
    UNISONO_CHECK(is_going_on, "pipeline: too few activations for the schedule");
  }
  return filled;
}

}  // namespace

Schedule fill_drain(int n_ranks, int n_chunks) {
  check_n_chunks(n_chunks);
  Schedule schedule{
      .n_chunks = n_chunks, .rank_of_stage = loop_placement(n_ranks, 1), .orders = {}};
  for (int rank = 0; rank < n_ranks; ++rank) {
    std::vector<Action>& order = schedule.orders.emplace_back();
    for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward}) {
      for (int chunk = 0; chunk < n_chunks; ++chunk) {
        order.push_back({.kind = kind, .stage = rank, .chunk = chunk});
      }
    }
  }
  return schedule;
}

namespace {

// A turn of a rank: a chunk in one of the rank's stages.
struct Turn {
  int stage_of_rank;  // Number among the stages of the rank.
  int chunk;
};

// The sizes of the rounds differ by at most one chunk. If possible, a round has at least as many
// chunks as there are ranks: a chunk has then passed all ranks before the next stage of a rank
// needs the chunk.
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
            {.stage_of_rank = kind == ActionKind::kForward ? turn : stages_per_rank - 1 - turn,
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
          {.kind = kind, .stage = turn.stage_of_rank * n_ranks + rank, .chunk = turn.chunk});
    };
    // Number of forwards before the first pair of forward and backward: a round for each other
    // stage of the rank, and one or two forwards for each later rank.
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

Schedule one_f_one_b(int n_ranks, int n_chunks) {
  return interleaved(n_ranks, n_chunks, 1);
}

Schedule zero_bubble_h1(int n_ranks, int n_chunks) {
  Schedule schedule = one_f_one_b(n_ranks, n_chunks);
  for (int rank = 0; rank < n_ranks; ++rank) {
    std::vector<Action> order;
    // Rank r delays the weight gradients of r chunks, so that it holds as many activations as rank
    // 0.
    const int n_delayed = rank;
    int next_weights = 0;
    const auto add_weights = [&] {
      order.push_back(
          {.kind = ActionKind::kBackwardWeight, .stage = rank, .chunk = next_weights++});
    };
    std::vector<Action>& joined = schedule.orders[as_index(rank)];
    for (Action action : joined) {
      if (action.kind == ActionKind::kForward) {
        order.push_back(action);
        continue;
      }
      action.kind = ActionKind::kBackwardInput;
      order.push_back(action);
      if (action.chunk >= n_delayed) {
        add_weights();
      }
    }
    while (next_weights < n_chunks) {
      add_weights();
    }
    joined = std::move(order);
  }
  return schedule;
}

namespace {

// The path of a chunk through all stages, on a clock that ticks once for each action. The next
// chunk follows 6 ticks later, because a rank has 6 actions of each chunk. A longer path has more
// chunks in flight, and needs more memory.
struct Block {
  // Ticks from one rank to the next, on each of the four ways: forward to the last rank, forward
  // back to rank 0, backward to the last rank, backward to rank 0.
  std::array<int, 4> steps;
  // Ticks between the four ways. All actions of a rank differ modulo 6, so that no two actions of
  // any chunks have the same tick.
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
      return 2 + 2 * ((n_ranks + 1) / 3);  // One half is 1 + ceil((n_ranks - 1) / 3).
    case VMemory::kHalf:
      return n_ranks + (n_ranks % 2 == 0 ? 2 : 1);
    case VMemory::kFull:
      break;
  }
  return 2 * n_ranks;
}

// An action of chunk 0 with its tick.
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

namespace {

// Writes the order of a rank. Each pass of a stage takes the chunks in ascending order.
class Writer {
 public:
  void forward(int stage) {
    order_.push_back({.kind = ActionKind::kForward, .stage = stage, .chunk = n_forward_[stage]++});
  }

  // A split backward computes only the input gradients; weights() computes the rest later.
  void backward(int stage, bool is_split) {
    const int chunk = n_backward_[stage]++;
    order_.push_back({.kind = is_split ? ActionKind::kBackwardInput : ActionKind::kBackward,
                      .stage = stage,
                      .chunk = chunk});
    if (is_split) {
      delayed_.push_back({.kind = ActionKind::kBackwardWeight, .stage = stage, .chunk = chunk});
    }
  }

  // Adds the oldest delayed weight gradients, if there are any.
  void weights() {
    if (!delayed_.empty()) {
      order_.push_back(delayed_.front());
      delayed_.pop_front();
    }
  }

  // Returns the order without the chunks from `n_chunks` on.
  std::vector<Action> take(int n_chunks) {
    std::erase_if(order_, [&](const Action& action) { return action.chunk >= n_chunks; });
    return std::move(order_);
  }

 private:
  std::vector<Action> order_;
  std::deque<Action> delayed_;
  std::map<int, int> n_forward_;
  std::map<int, int> n_backward_;
};

void write_start(Writer& order, int rank, int n_behind, int near, int far) {
  for (int i = 0; i < 2 * n_behind; ++i) {
    order.forward(near);
  }
  for (int i = 0; i <= rank; ++i) {
    order.forward(near);
    order.forward(far);
  }
  for (int i = 0; i < n_behind; ++i) {
    order.backward(far, true);
    order.weights();
    order.forward(far);
  }
}

// The forward of one stage alternates with the backward of the other.
void write_middle(Writer& order, int n_pairs, int n_behind, int near, int far) {
  for (int i = 0; i < n_pairs; ++i) {
    order.forward(near);
    order.backward(far, false);
    order.forward(far);
    order.backward(near, false);
  }
  for (int i = 0; i < n_behind; ++i) {
    order.backward(far, false);
    order.forward(far);
    order.backward(near, false);
  }
}

// From the middle on, weight gradients are delayed and fill the end.
void write_end(Writer& order, int rank, int n_behind, int near, int far) {
  const int n_whole = rank + 1;  // Backwards before the first split backward.
  for (int i = 0; i <= rank; ++i) {
    order.backward(far, 2 * i >= n_whole);
    order.backward(near, 2 * i + 1 >= n_whole);
  }
  for (int i = 0; i < n_behind; ++i) {
    order.weights();
    order.backward(near, true);
  }
  for (int i = 0; i <= rank; ++i) {
    order.weights();
  }
}

}  // namespace

Schedule dual_pipe_v(int n_ranks, int n_chunks) {
  check_n_chunks(n_chunks);
  Schedule schedule{.n_chunks = n_chunks, .rank_of_stage = v_placement(n_ranks), .orders = {}};
  // The plan has at least as many chunks as stages; take() drops the chunks that the batch does not
  // have.
  const int n_planned = std::max(n_chunks, 2 * n_ranks);
  for (int rank = 0; rank < n_ranks; ++rank) {
    const int n_behind = n_ranks - 1 - rank;
    const int near = rank;
    const int far = 2 * n_ranks - 1 - rank;
    Writer order;
    write_start(order, rank, n_behind, near, far);
    write_middle(order, n_planned - 2 * n_ranks + rank + 1, n_behind, near, far);
    write_end(order, rank, n_behind, near, far);
    schedule.orders.push_back(order.take(n_chunks));
  }
  return schedule;
}

}  // namespace unisono::pipeline
