#include "unisono/transport/shm/board.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/base/spin.h"
#include "unisono/transport/patience.h"
#include "unisono/transport/shm/asymmetric_fence.h"
#include "unisono/transport/shm/text_note.h"

namespace unisono::shm {
namespace {

// Between looks of a rank whose peers may not have heard that it sleeps.
constexpr std::chrono::milliseconds kUnheardSleep{1};

bool shows_card(const BoardMemory& board, std::uint64_t sequence) {
  return board.cards[sequence % 2].sequence.load(std::memory_order_acquire) == sequence;
}

}  // namespace

std::int64_t Board::n_bytes(int local_world_size) {
  return static_cast<std::int64_t>(sizeof(BoardMemory) +
                                   2 * sizeof(Offer) * static_cast<std::size_t>(local_world_size));
}

Board::Board(const std::vector<Seat>& seats, int local_rank)
    : local_rank_(local_rank), pid_(::getpid()) {
  const std::int64_t size = n_bytes(static_cast<int>(seats.size()));
  for (const Seat& seat : seats) {
    UNISONO_CHECK(seat.offset_bytes >= 0 && seat.offset_bytes <= seat.arena->n_bytes() - size,
                  "an arena is too small for a group's board");
    std::byte* const begin = seat.arena->data() + seat.offset_bytes;
    members_.push_back({.arena = seat.arena,
                        .board = reinterpret_cast<BoardMemory*>(begin),
                        .offers = reinterpret_cast<Offer*>(begin + sizeof(BoardMemory)),
                        .rank = seat.rank});
  }
  if (members_.size() > 1) {
    join_asymmetric_fences();
  }
}

template <class HasArrived>
void Board::wait_for_all(HasArrived has_arrived, WaitMode mode, transport::Patience& patience) {
  std::size_t next = 0;
  // Its own line is on the way to the peers: it does not look at it.
  const auto all_have_arrived = [&] {
    while (next < members_.size() && (next == self() || has_arrived(*members_[next].board))) {
      ++next;
    }
    return next == members_.size();
  };
  const int n_spins = std::min(mode.n_spins, spin_limit_.n_spins());
  for (int spin = 0; spin < n_spins; ++spin) {
    if (all_have_arrived()) {
      if (spin > 0) {
        spin_limit_.note_spun();
      }
      return;
    }
    pause_briefly();
  }
  for (int yield = 0; yield < mode.n_yields; ++yield) {
    if (all_have_arrived()) {
      spin_limit_.note_yielded(yield);
      return;
    }
    ::sched_yield();
  }
  const auto late_ranks = [&] {
    std::vector<int> ranks;
    for (const Member& peer : members_) {
      if (!has_arrived(*peer.board)) {
        ranks.push_back(peer.rank);
      }
    }
    return ranks;
  };
  Doorbell& doorbell = members_[self()].board->doorbell;
  while (true) {
    const std::uint32_t rings = doorbell.prepare();
    const bool is_heard = asymmetric_fence_heavy();
    if (all_have_arrived()) {
      doorbell.stay();
      patience.note_progress();
      return;
    }
    // A failure that comes after this look rings the doorbell.
    patience.check(late_ranks);
    const Deadline next_look = is_heard ? Deadline::never() : Deadline::after(kUnheardSleep);
    doorbell.sleep(rings, earlier(patience.next_check(), next_look));
  }
}

void Board::enter(std::uint64_t sequence, WaitMode mode, transport::Patience& patience) {
  show_card(sequence);
  wait_for_cards(sequence, mode, patience);
}

void Board::show_card(std::uint64_t sequence) {
  my_card(sequence).sequence.store(sequence, std::memory_order_release);
  ring_peers();
}

void Board::wait_for_cards(std::uint64_t sequence, WaitMode mode, transport::Patience& patience) {
  wait_for_all(
      [sequence](const BoardMemory& board) { return shows_card(board, sequence); }, mode, patience);
}

std::vector<int> Board::find_absent(std::uint64_t sequence) const {
  std::vector<int> ranks;
  for (const Member& peer : members_) {
    if (!shows_card(*peer.board, sequence)) {
      ranks.push_back(peer.rank);
    }
  }
  return ranks;
}

void Board::sync(WaitMode mode, transport::Patience& patience) {
  const std::uint64_t stage = ++stage_;
  members_[self()].board->stage.store(stage, std::memory_order_release);
  ring_peers();
  // What was read of the peers' memory was read before this looks whether they gave up.
  std::atomic_thread_fence(std::memory_order_acquire);
  wait_for_all(
      [stage](const BoardMemory& board) {
        if (board.stage.load(std::memory_order_acquire) < stage) {
          return false;
        }
        const std::uint64_t gave_up_at = board.gave_up_at.load(std::memory_order_acquire);
        return gave_up_at == 0 || gave_up_at > stage;
      },
      mode,
      patience);
  passed_stage_ = stage;
}

void Board::give_up() {
  members_[self()].board->gave_up_at.store(passed_stage_ + 1, std::memory_order_relaxed);
  // Before anything that the caller writes from now on.
  std::atomic_thread_fence(std::memory_order_release);
}

void Board::note_refused(std::uint64_t sequence, std::string_view text) {
  write(&BoardMemory::refused, sequence, text);
}

void Board::note_waits(std::string_view text) {
  write(&BoardMemory::waits, 0, text);
}

void Board::write(TextNote BoardMemory::* note, std::uint64_t number, std::string_view text) {
  // Before the lock: another thread may have held it when the process forked.
  if (::getpid() != pid_) {
    return;
  }
  const MutexLock lock(mutex_);
  if (!has_left_) {
    (members_[self()].board->*note).write(number, text);
  }
}

transport::Standing Board::standing(int local_rank) const {
  const BoardMemory& board = *member(local_rank).board;
  transport::Standing standing;
  // A rank in the middle of things changes its cards while they are read.
  constexpr int kTries = 100;
  for (int n = 0; n < kTries; ++n) {
    const bool is_second = board.cards[1].sequence.load(std::memory_order_acquire) >
                           board.cards[0].sequence.load(std::memory_order_acquire);
    const Card& newest = board.cards[is_second ? 1 : 0];
    const Card& other = board.cards[is_second ? 0 : 1];
    standing.sequence = newest.sequence.load(std::memory_order_acquire);
    standing.descriptor = newest.descriptor();
    standing.has_finished = board.finished.load(std::memory_order_relaxed) == standing.sequence;
    // A card is filled in anew only after the other one was shown.
    if (other.sequence.load(std::memory_order_relaxed) <= standing.sequence) {
      break;
    }
  }
  std::optional<TextNote::Content> refused = board.refused.read();
  if (refused && refused->number == standing.sequence) {
    standing.refused = std::move(refused->text);
  }
  if (std::optional<TextNote::Content> waits = board.waits.read()) {
    standing.waits = std::move(waits->text);
  }
  return standing;
}

// Once all have left, the board may be something else.
std::optional<transport::Standing> Board::own_standing() const {
  const MutexLock lock(mutex_);
  return has_left_ ? std::nullopt : std::optional(standing(local_rank_));
}

bool Board::do_all_read_peers() const {
  return std::all_of(members_.begin(), members_.end(), [](const Member& member) {
    return member.board->reads_peers.load(std::memory_order_relaxed) != 0;
  });
}

void Board::leave() {
  {
    // Once all have left, this rank's own part may be another board's.
    const MutexLock lock(mutex_);
    has_left_ = true;
  }
  for (const Member& peer : members_) {
    // Release: what this rank read there, it has read.
    peer.board->n_left.fetch_add(1, std::memory_order_release);
  }
}

bool Board::have_all_left(const Arena& arena, std::int64_t offset_bytes, int local_world_size) {
  const auto* const board = reinterpret_cast<const BoardMemory*>(arena.data() + offset_bytes);
  return board->n_left.load(std::memory_order_acquire) == local_world_size;
}

// After a store that they wait for.
void Board::ring_peers() const {
  asymmetric_fence_light();
  for (std::size_t peer = 0; peer < members_.size(); ++peer) {
    if (peer != self()) {
      members_[peer].board->doorbell.ring();
    }
  }
}

}  // namespace unisono::shm
