#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "unisono/base/mutex.h"
#include "unisono/base/spin.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/shm/arena.h"
#include "unisono/transport/shm/doorbell.h"
#include "unisono/transport/shm/seqlock_text.h"
#include "unisono/transport/wait_monitor.h"
#include "unisono/transport/waiter.h"

namespace unisono::shm {

inline constexpr std::size_t kCacheLine = 64;

/// Contribution to a one-shot operation.
inline constexpr std::int64_t kSlotBytes = 16 << 10;

/// One of the buffers through which memory outside the arenas is passed.
inline constexpr std::int64_t kStagingBytes = 4 << 20;

/// What passes through them at once inside a node: still in the cache when the peers read it.
inline constexpr std::int64_t kSegmentBytes = 256 << 10;

/// Where peers of the node find the data that a rank offers.
enum class Exposure : std::uint16_t {
  kNothing,          ///< It gives them nothing.
  kOperationHeader,  ///< In its header: its only offer, of a size that all know.
  kSlot,             ///< In its slot, all of it.
  kArena,            ///< Where it lies in its arena; it must stay until all have read it.
  kProcess,          ///< Where it lies in its private memory, by address; it must stay, too.
  kStaged            ///< Window by window in its staging buffers.
};

/// The data that a rank offers one other rank of its node.
struct Offer {
  std::int64_t n_bytes;
  /// Where it begins: in the slot, in the arena, in the process, or in each staging buffer.
  std::int64_t offset;
  /// What the rank takes from that other rank.
  std::int64_t n_bytes_taken;
};

/// Where a rank's buffers are.
struct Placement {
  /// In its arena, or -1.
  std::int64_t in_offset;
  std::int64_t out_offset;
  /// In its process, if its peers may read it there; else 0.
  std::uint64_t in_address;
  std::uint64_t out_address;
};

/// Where a rank's offers to its peers are.
struct OfferPlacement {
  /// Bytes of an offer in one window of kStaged, and how many windows there are.
  std::int64_t share_bytes;
  std::uint32_t n_windows;
  Exposure exposure;
  std::uint16_t n_offers;
  std::array<std::byte, 16> payload;  ///< Of kOperationHeader.
};

/// What a rank shows its node's peers when it enters an operation: a cache line.
struct alignas(kCacheLine) OperationHeader {
  /// Written last, so whoever sees an operation's number sees the rest of its header.
  std::atomic<std::uint64_t> sequence;
  /// The operation's descriptor. In words, as who reports a stall may look at any time.
  std::array<std::atomic<std::uint64_t>, 3> words;

  union {
    Placement placement;
    OfferPlacement offers;
    /// Instead, the contribution itself: it comes with the line that says that it is there.
    std::array<std::byte, sizeof(Placement)> payload;
  };

  void set_descriptor(const transport::Descriptor& descriptor) {
    const auto values = std::bit_cast<std::array<std::uint64_t, 3>>(descriptor);
    for (std::size_t i = 0; i < values.size(); ++i) {
      words[i].store(values[i], std::memory_order_relaxed);
    }
  }

  [[nodiscard]] bool has_descriptor(const transport::Descriptor& expected) const {
    const auto values = std::bit_cast<std::array<std::uint64_t, 3>>(expected);
    std::uint64_t difference = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      difference |= words[i].load(std::memory_order_relaxed) ^ values[i];
    }
    return difference == 0;
  }

  /// Acquire: what is read after it is not older.
  [[nodiscard]] transport::Descriptor descriptor() const {
    std::array<std::uint64_t, 3> values{};
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = words[i].load(std::memory_order_acquire);
    }
    return std::bit_cast<transport::Descriptor>(values);
  }
};

inline constexpr auto kInlineBytes = static_cast<std::int64_t>(sizeof(Placement));

static_assert(sizeof(OperationHeader) == kCacheLine);

/// A group's part of one rank's arena. All zero at first. Two rows of offers follow it, with an
/// offer for each rank of the node.
struct ControlBlockMemory {
  // Operations alternate between two headers, two slots and two rows of offers. A rank can be one
  // operation ahead of a peer that still reads, but never two: entering an operation needs every
  // rank's header for it.
  std::array<OperationHeader, 2> headers;
  alignas(kCacheLine) std::atomic<std::uint64_t> stage;
  /// The stage that the rank gave up before it had passed it, on the line that its peers look at
  /// for the stage; 0: none.
  std::atomic<std::uint64_t> gave_up_at;
  alignas(kCacheLine) Doorbell doorbell;
  std::atomic<int> n_left;       ///< How many of the node's ranks have left.
  std::atomic<int> is_leaving;   ///< 1 once the rank takes no further part in the group.
  std::atomic<int> reads_peers;  ///< 1 once the rank knows that it reads its peers' memory.
  /// The last operation that the rank has finished. Peers look at this line only when they wait
  /// for long, so that it stays in the rank's own cache.
  alignas(kCacheLine) std::atomic<std::uint64_t> finished;
  /// The last call that the rank refused, with the number of the one before it.
  alignas(kCacheLine) SeqlockText refused;
  /// The messages that the rank has waited for since long.
  alignas(kCacheLine) SeqlockText waits;
  alignas(4096) std::array<std::array<std::byte, kSlotBytes>, 2> slots;
  alignas(4096) std::array<std::array<std::byte, kStagingBytes>, 2> staging_in;
  alignas(4096) std::array<std::array<std::byte, kStagingBytes>, 2> staging_out;
};

/// Where the ranks of a node meet in each operation of a group: every rank writes into its own
/// arena and reads its peers'. One thread of each rank at a time.
class ControlBlock {
 public:
  /// Bytes of a rank's part of the control block, in whole pages.
  [[nodiscard]] static std::int64_t n_bytes(int local_world_size);

  /// The ranks of the group on this node, in order, and the part of each; `local_rank` is this
  /// rank's index in them.
  ControlBlock(std::span<const int> ranks, std::span<const ArenaPart> parts, int local_rank);

  [[nodiscard]] int local_world_size() const { return static_cast<int>(members_.size()); }

  [[nodiscard]] int local_rank() const { return local_rank_; }

  [[nodiscard]] int rank_of(int local_rank) const { return member(local_rank).rank; }

  /// The header to fill in for operation `sequence` before enter().
  [[nodiscard]] OperationHeader& own_header(std::uint64_t sequence) {
    return members_[self()].control_block->headers[sequence % 2];
  }

  /// A peer's header, after enter().
  [[nodiscard]] const OperationHeader& header(int local_rank, std::uint64_t sequence) const {
    return member(local_rank).control_block->headers[sequence % 2];
  }

  /// What rank `from` gives rank `to`: written by `from` before enter().
  [[nodiscard]] Offer& offer(int from, int to, std::uint64_t sequence) const {
    const std::size_t row = sequence % 2 * members_.size();
    return member(from).offers[row + static_cast<std::size_t>(to)];
  }

  /// A rank's slot for one-shot contributions: written before enter(), read by all after it.
  [[nodiscard]] std::byte* slot(int local_rank, std::uint64_t sequence) const {
    return member(local_rank).control_block->slots[sequence % 2].data();
  }

  [[nodiscard]] std::byte* staging_in(int local_rank, std::int64_t index) const {
    return member(local_rank).control_block->staging_in[static_cast<std::size_t>(index % 2)].data();
  }

  [[nodiscard]] std::byte* staging_out(int local_rank, std::int64_t index) const {
    return member(local_rank)
        .control_block->staging_out[static_cast<std::size_t>(index % 2)]
        .data();
  }

  /// The bytes at an offset of a rank's arena.
  [[nodiscard]] std::byte* at(int local_rank, std::int64_t offset) const {
    return member(local_rank).arena->data() + offset;
  }

  [[nodiscard]] const Arena& arena(int local_rank) const { return *member(local_rank).arena; }

  /// Shows the header, and waits until every rank of the node shows its own for this operation.
  void enter(std::uint64_t sequence,
             transport::WaitMode mode,
             transport::WaitMonitor& wait_monitor);

  /// The first half of enter().
  void show_header(std::uint64_t sequence);

  /// The second half.
  void wait_for_headers(std::uint64_t sequence,
                        transport::WaitMode mode,
                        transport::WaitMonitor& wait_monitor);

  /// The ranks of the node that don't show their headers for this operation yet.
  [[nodiscard]] std::vector<int> find_absent(std::uint64_t sequence) const;

  /// Waits until every rank of the node has called it as often as this one. Does not return if one
  /// of them has given up waiting by then: what this rank has read of that one's memory before the
  /// call may be anything.
  void sync(transport::WaitMode mode, transport::WaitMonitor& wait_monitor);

  /// To be called after an enter() or sync() that threw, before the memory that this rank has shown
  /// its peers may change.
  void give_up();

  /// This rank's part of the operation is done.
  void note_finished(std::uint64_t sequence) {
    members_[self()].control_block->finished.store(sequence, std::memory_order_relaxed);
  }

  /// This rank has refused a call after operation `sequence`; the text says which, and why. Tells
  /// nobody after leave(), nor in a child of fork(), which has no part of the control block. Any
  /// thread.
  void note_refused(std::uint64_t sequence, std::string_view text) UNISONO_EXCLUDES(mutex_);

  /// For which messages this rank has waited since long, in words; empty: for none. The same.
  void note_waits(std::string_view text) UNISONO_EXCLUDES(mutex_);

  /// Where a rank of the node is, by its headers. Any thread.
  [[nodiscard]] transport::RankProgress rank_progress(int local_rank) const;

  /// Where this rank is; nothing after leave(). Any thread.
  [[nodiscard]] std::optional<transport::RankProgress> own_progress() const
      UNISONO_EXCLUDES(mutex_);

  /// This rank takes no further part; wakes the ranks that wait for it.
  void announce_leave() const;

  /// Whether a rank of the node has announced that. All that it has done in the group before is
  /// visible then. After this rank's leave() it needs no rank any more, and all have. Any thread.
  [[nodiscard]] bool is_leaving(int local_rank) const UNISONO_EXCLUDES(mutex_);

  /// This rank can and wants to read its peers' private memory.
  void note_reading_peers() const {
    members_[self()].control_block->reads_peers.store(1, std::memory_order_relaxed);
  }

  /// Whether all ranks of the node do.
  [[nodiscard]] bool do_all_read_peers() const;

  /// The last call: this rank looks at its peers' parts no more.
  void leave() UNISONO_EXCLUDES(mutex_);

  /// Whether every rank of the node has left the control block whose part lies at `offset_bytes` of
  /// `arena`: then that memory is nobody else's.
  [[nodiscard]] static bool have_all_left(const Arena& arena,
                                          std::int64_t offset_bytes,
                                          int local_world_size);

  /// Makes this rank's waits look again. Any thread.
  void wake() const { members_[self()].control_block->doorbell.ring(); }

 private:
  struct MappedMember {
    std::shared_ptr<const Arena> arena;
    ControlBlockMemory* control_block;
    Offer* offers;
    int rank;
  };

  [[nodiscard]] std::size_t self() const { return static_cast<std::size_t>(local_rank_); }

  [[nodiscard]] const MappedMember& member(int local_rank) const {
    return members_[static_cast<std::size_t>(local_rank)];
  }

  template <class HasArrived>
  void wait_for_all(HasArrived has_arrived,
                    transport::WaitMode mode,
                    transport::WaitMonitor& wait_monitor);

  void ring_peers() const;

  void write(SeqlockText ControlBlockMemory::* note, std::uint64_t number, std::string_view text)
      UNISONO_EXCLUDES(mutex_);

  std::vector<MappedMember> members_;
  int local_rank_;
  std::uint64_t stage_ = 0;
  std::uint64_t passed_stage_ = 0;
  SpinLimit spin_limit_;
  pid_t pid_;            // Whose memory the parts are mapped in.
  mutable Mutex mutex_;  // Guards writing of this rank's notes, too.
  bool has_left_ UNISONO_GUARDED_BY(mutex_) = false;
};

}  // namespace unisono::shm
