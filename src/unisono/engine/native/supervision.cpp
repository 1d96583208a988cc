#include "unisono/engine/native/supervision.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/engine/native/operation_context.h"
#include "unisono/engine/supervising_engine.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/waiter.h"

namespace unisono::engine {
namespace {

using Clock = Deadline::Clock;
using transport::Look;

// Looks between two checks of the wait, which ask the clock and the peers' headers.
constexpr int kLooksPerCheck = 64;

// Ranks of other nodes that come within this time are not slept for.
constexpr std::chrono::milliseconds kAwake{10};

// A nap is this part of the time that the wait has taken, and this long at most.
constexpr int kNapPart = 64;
constexpr std::chrono::microseconds kLongestNap{1000};

// What a rank has sent before it left may still be on its way for so long.
constexpr std::chrono::seconds kStillOnItsWay{2};

// Whether the rank may still have to do a part in the operation. Where one of another node is,
// nobody knows here.
bool is_late(const OperationContext& context, int rank) {
  if (context.topology.node_of(rank) != context.topology.node()) {
    return !context.ranks.find_departed(std::array{rank});
  }
  const transport::RankProgress progress =
      context.control_block.rank_progress(context.topology.local_rank_of(rank));
  const std::uint64_t sequence = context.operation.sequence;
  return progress.sequence < sequence || (progress.sequence == sequence && !progress.has_finished);
}

}  // namespace

void carry_out_supervised(SupervisedOperation& supervised,
                          OperationContext& context,
                          std::uint32_t group) {
  context.enter();
  if (supervised.meets_all()) {
    context.meet_other_nodes();
  }
  supervised.begin(context.operation, group);
  const Clock::time_point begin = Clock::now();
  const auto find_late_ranks = [&] {
    const bool counts_all = Clock::now() - begin >= kStillOnItsWay;
    std::vector<int> late;
    for (int rank = 0; rank < context.topology.world_size(); ++rank) {
      if (rank != context.topology.rank() && (counts_all || is_late(context, rank))) {
        late.push_back(rank);
      }
    }
    return late;
  };
  const bool has_other_nodes = context.topology.n_nodes() > 1;
  const auto look = [&] { return supervised.advance() ? Look::kDone : Look::kNothing; };
  const auto check_and_nap = [&] {
    context.wait_monitor.check(find_late_ranks);
    if (const auto waited = Clock::now() - begin; has_other_nodes && waited >= kAwake) {
      std::this_thread::sleep_for(std::min<Clock::duration>(waited / kNapPart, kLongestNap));
    }
    return Look::kProgress;
  };
  transport::wait(
      {.n_spins = context.mode.n_spins, .n_yields = kLooksPerCheck}, nullptr, look, check_and_nap);
  context.wait_monitor.note_progress();
}

}  // namespace unisono::engine
