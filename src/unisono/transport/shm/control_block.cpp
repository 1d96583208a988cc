#include "unisono/transport/shm/control_block.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/base/text.h"
#include "unisono/base/thread.h"
#include "unisono/transport/shm/doorbell.h"
#include "unisono/transport/wait.h"

namespace unisono::shm {

void SeqlockText::write(std::uint64_t number, std::string_view text) {
  text = utf8_prefix(text, kMaxBytes);
  std::array<std::uint64_t, kWords> words{};
  std::memcpy(words.data(), text.data(), text.size());
  const std::uint64_t version = version_.load(std::memory_order_relaxed);
  version_.store(version + 1, std::memory_order_release);
  number_.store(number, std::memory_order_release);
  n_bytes_.store(text.size(), std::memory_order_release);
  for (std::size_t i = 0; i < kWords; ++i) {
    words_[i].store(words[i], std::memory_order_release);
  }
  version_.store(version + 2, std::memory_order_release);
}

std::optional<SeqlockText::Content> SeqlockText::read() const {
  constexpr int kTries = 100;
  for (int n = 0; n < kTries; ++n) {
    const std::uint64_t version = version_.load(std::memory_order_acquire);
    if (version == 0) {
      return std::nullopt;
    }
    const std::uint64_t number = number_.load(std::memory_order_acquire);
    // Another process wrote the value, so the value is not trusted.
    const std::size_t n_bytes =
        std::min<std::size_t>(n_bytes_.load(std::memory_order_acquire), kMaxBytes);
    std::array<std::uint64_t, kWords> words{};
    for (std::size_t i = 0; i < kWords; ++i) {
      words[i] = words_[i].load(std::memory_order_acquire);
    }
    if (version % 2 == 0 && version_.load(std::memory_order_acquire) == version) {
      return Content{.number = number,
                     .text = {reinterpret_cast<const char*>(words.data()), n_bytes}};
    }
  }
  return std::nullopt;
}

namespace {

// Poll interval of a sleeping rank after a failed heavy fence: peers may have missed the sleep
// flag.
constexpr std::chrono::milliseconds kUnheardSleep{1};

bool shows_header(const ControlBlockMemory& control_block, std::uint64_t sequence) {
  return control_block.headers[sequence % 2].sequence.load(std::memory_order_acquire) == sequence;
}

}  // namespace

std::int64_t ControlBlock::n_bytes(int local_world_size) {
  const std::size_t page_bytes = alignof(ControlBlockMemory);
  const std::size_t offers = 2 * sizeof(Offer) * static_cast<std::size_t>(local_world_size);
  const std::size_t n_pages = (sizeof(ControlBlockMemory) + offers + page_bytes - 1) / page_bytes;
  return static_cast<std::int64_t>(n_pages * page_bytes);
}

ControlBlock::ControlBlock(std::span<const int> ranks,
                           std::span<const ArenaPart> parts,
                           int local_rank)
    : local_rank_(local_rank), pid_(::getpid()) {
  const std::int64_t size = n_bytes(static_cast<int>(ranks.size()));
  for (std::size_t index = 0; index < ranks.size(); ++index) {
    const ArenaPart& part = parts[index];
    UNISONO_CHECK(part.offset_bytes >= 0 && part.offset_bytes <= part.arena->n_bytes() - size,
                  "an arena is too small for a group's control block");
    std::byte* const begin = part.arena->data() + part.offset_bytes;
    members_.push_back({.arena = part.arena,
                        .control_block = reinterpret_cast<ControlBlockMemory*>(begin),
                        .offers = reinterpret_cast<Offer*>(begin + sizeof(ControlBlockMemory)),
                        .rank = ranks[index]});
  }
  if (members_.size() > 1) {
    join_asymmetric_fences();
  }
}

template <class HasArrived>
void ControlBlock::wait_for_all(HasArrived has_arrived,
                                transport::WaitMode mode,
                                transport::WaitMonitor& wait_monitor) {
  using transport::Look;
  std::size_t next = 0;
  // The rank's own cache line is in transit to the peers, so the rank does not read it.
  const auto look = [&] {
    while (next < members_.size() &&
           (next == self() || has_arrived(*members_[next].control_block))) {
      ++next;
    }
    return next == members_.size() ? Look::kDone : Look::kNothing;
  };
  const auto late_ranks = [&] {
    std::vector<int> ranks;
    for (const MappedMember& peer : members_) {
      if (!has_arrived(*peer.control_block)) {
        ranks.push_back(peer.rank);
      }
    }
    return ranks;
  };
  Doorbell& doorbell = members_[self()].control_block->doorbell;
  const auto sleep = [&] {
    const std::uint32_t rings = doorbell.prepare();
    const bool is_heard = asymmetric_fence_heavy();
    if (look() == Look::kDone) {
      doorbell.stay();
      wait_monitor.note_progress();
      return Look::kDone;
    }
    // A failure that is set after this check rings the doorbell.
    wait_monitor.check(late_ranks);
    const Deadline next_look = is_heard ? Deadline::never() : Deadline::after(kUnheardSleep);
    doorbell.sleep(rings, earlier(wait_monitor.next_check(), next_look));
    return Look::kNothing;
  };
  mode.n_spins = std::min(mode.n_spins, spin_limit_.n_spins());
  transport::wait(mode, &spin_limit_, look, sleep);
}

void ControlBlock::enter(std::uint64_t sequence,
                         transport::WaitMode mode,
                         transport::WaitMonitor& wait_monitor) {
  show_header(sequence);
  wait_for_headers(sequence, mode, wait_monitor);
}

void ControlBlock::show_header(std::uint64_t sequence) {
  own_header(sequence).sequence.store(sequence, std::memory_order_release);
  ring_peers();
}

void ControlBlock::wait_for_headers(std::uint64_t sequence,
                                    transport::WaitMode mode,
                                    transport::WaitMonitor& wait_monitor) {
  wait_for_all(
      [sequence](const ControlBlockMemory& control_block) {
        return shows_header(control_block, sequence);
      },
      mode,
      wait_monitor);
}

std::vector<int> ControlBlock::find_absent(std::uint64_t sequence) const {
  std::vector<int> ranks;
  for (const MappedMember& peer : members_) {
    if (!shows_header(*peer.control_block, sequence)) {
      ranks.push_back(peer.rank);
    }
  }
  return ranks;
}

void ControlBlock::sync(transport::WaitMode mode, transport::WaitMonitor& wait_monitor) {
  const std::uint64_t stage = ++stage_;
  members_[self()].control_block->stage.store(stage, std::memory_order_release);
  ring_peers();
  // Reads of the peers' memory come before the loads of gave_up_at below.
  std::atomic_thread_fence(std::memory_order_acquire);
  wait_for_all(
      [stage](const ControlBlockMemory& control_block) {
        if (control_block.stage.load(std::memory_order_acquire) < stage) {
          return false;
        }
        const std::uint64_t gave_up_at = control_block.gave_up_at.load(std::memory_order_acquire);
        return gave_up_at == 0 || gave_up_at > stage;
      },
      mode,
      wait_monitor);
  passed_stage_ = stage;
}

void ControlBlock::give_up() {
  members_[self()].control_block->gave_up_at.store(passed_stage_ + 1, std::memory_order_relaxed);
  // Orders the store before all later writes of the caller.
  std::atomic_thread_fence(std::memory_order_release);
}

void ControlBlock::note_refused(std::uint64_t sequence, std::string_view text) {
  write(&ControlBlockMemory::refused, sequence, text);
}

void ControlBlock::note_waits(std::string_view text) {
  write(&ControlBlockMemory::waits, 0, text);
}

void ControlBlock::write(SeqlockText ControlBlockMemory::* note,
                         std::uint64_t number,
                         std::string_view text) {
  // Checked before the lock is taken: another thread may have held it when the process forked.
  if (::getpid() != pid_) {
    return;
  }
  const MutexLock lock(mutex_);
  if (!has_left_) {
    (members_[self()].control_block->*note).write(number, text);
  }
}

transport::RankProgress ControlBlock::rank_progress(int local_rank) const {
  const ControlBlockMemory& control_block = *member(local_rank).control_block;
  transport::RankProgress rank_progress;
  // A running rank changes headers during the read, so the read is repeated.
  constexpr int kTries = 100;
  for (int n = 0; n < kTries; ++n) {
    const bool is_second = control_block.headers[1].sequence.load(std::memory_order_acquire) >
                           control_block.headers[0].sequence.load(std::memory_order_acquire);
    const OperationHeader& newest = control_block.headers[is_second ? 1 : 0];
    const OperationHeader& other = control_block.headers[is_second ? 0 : 1];
    rank_progress.sequence = newest.sequence.load(std::memory_order_acquire);
    rank_progress.descriptor = newest.descriptor();
    rank_progress.has_finished =
        control_block.finished.load(std::memory_order_relaxed) == rank_progress.sequence;
    // A header is reused only after the other header was published.
    if (other.sequence.load(std::memory_order_relaxed) <= rank_progress.sequence) {
      break;
    }
  }
  std::optional<SeqlockText::Content> refused = control_block.refused.read();
  if (refused && refused->number == rank_progress.sequence) {
    rank_progress.refused = std::move(refused->text);
  }
  if (std::optional<SeqlockText::Content> waits = control_block.waits.read()) {
    rank_progress.waits = std::move(waits->text);
  }
  return rank_progress;
}

// After all ranks have left, the memory of the control block may be reused.
std::optional<transport::RankProgress> ControlBlock::own_progress() const {
  const MutexLock lock(mutex_);
  if (has_left_) {
    return std::nullopt;
  }
  transport::RankProgress own = rank_progress(local_rank_);
  own.n_finished_on_node = std::numeric_limits<std::uint64_t>::max();
  for (const MappedMember& peer : members_) {
    own.n_finished_on_node = std::min(own.n_finished_on_node,
                                      peer.control_block->finished.load(std::memory_order_relaxed));
  }
  return own;
}

void ControlBlock::announce_leave() const {
  members_[self()].control_block->is_leaving.store(1, std::memory_order_seq_cst);
  for (const MappedMember& peer : members_) {
    peer.control_block->doorbell.ring();
  }
}

// After all ranks have left, the memory of a peer's section may be reused.
bool ControlBlock::is_leaving(int local_rank) const {
  const MutexLock lock(mutex_);
  return has_left_ ||
         member(local_rank).control_block->is_leaving.load(std::memory_order_seq_cst) != 0;
}

bool ControlBlock::do_all_read_peers() const {
  return std::all_of(members_.begin(), members_.end(), [](const MappedMember& member) {
    return member.control_block->reads_peers.load(std::memory_order_relaxed) != 0;
  });
}

void ControlBlock::leave() {
  {
    // After all ranks have left, this rank's section may be part of another control block.
    const MutexLock lock(mutex_);
    has_left_ = true;
  }
  for (const MappedMember& peer : members_) {
    // Release: this rank's reads of the section come before.
    peer.control_block->n_left.fetch_add(1, std::memory_order_release);
  }
}

bool ControlBlock::have_all_left(const Arena& arena,
                                 std::int64_t offset_bytes,
                                 int local_world_size) {
  const auto* const control_block =
      reinterpret_cast<const ControlBlockMemory*>(arena.data() + offset_bytes);
  return control_block->n_left.load(std::memory_order_acquire) == local_world_size;
}

// Wakes peers that may sleep on the word just stored.
void ControlBlock::ring_peers() const {
  asymmetric_fence_light();
  for (std::size_t peer = 0; peer < members_.size(); ++peer) {
    if (peer != self()) {
      members_[peer].control_block->doorbell.ring();
    }
  }
}

namespace {

// Small enough that the lines are still in the L1 cache when they are handed back.
constexpr std::size_t kBlock = 4096;

bool is_worth_it() noexcept {
#if defined(__x86_64__)
  static const bool is_amd = __builtin_cpu_is("amd") != 0;
  return is_amd;
#else
  return false;
#endif
}

void write_as_it_is(volatile std::byte& byte) noexcept {
  const std::byte value = byte;
  byte = value;
}

void write_as_they_are(std::byte* bytes, std::size_t n_bytes) noexcept {
  for (std::size_t at = 0; at < n_bytes; at += kCacheLine) {
    write_as_it_is(bytes[at]);
  }
  if (n_bytes > 0) {
    // Touches one more line if the bytes begin in the middle of a line.
    write_as_it_is(bytes[n_bytes - 1]);
  }
}

}  // namespace

void hand_back(std::byte* bytes, std::size_t n_bytes) noexcept {
  if (is_worth_it()) {
    write_as_they_are(bytes, n_bytes);
  }
}

void take_over(std::byte* to, std::byte* from, std::size_t n_bytes) noexcept {
  if (!is_worth_it()) {
    std::copy_n(from, n_bytes, to);
    return;
  }
  for (std::size_t at = 0; at < n_bytes; at += kBlock) {
    const std::size_t n = std::min(kBlock, n_bytes - at);
    std::copy_n(from + at, n, to + at);
    write_as_they_are(from + at, n);
  }
}

}  // namespace unisono::shm
