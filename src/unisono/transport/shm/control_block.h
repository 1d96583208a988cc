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
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/mutex.h"
#include "unisono/base/thread.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/shm/arena.h"
#include "unisono/transport/shm/doorbell.h"
#include "unisono/transport/wait.h"

namespace unisono::shm {

/// A text with a number in shared memory, protected by a seqlock. A rank writes the text any number
/// of times; peers read at any time. Zero-initialized, which means no text.
class SeqlockText {
 public:
  /// Longer texts are cut to at most this many bytes, at a character boundary.
  static constexpr std::size_t kMaxBytes = transport::kMaxNoteBytes;

  struct Content {
    std::uint64_t number;
    std::string text;
  };

  /// One writer at a time; readers may run concurrently.
  void write(std::uint64_t number, std::string_view text);

  /// Returns std::nullopt before the first write(), or if concurrent writes prevent a consistent
  /// read.
  [[nodiscard]] std::optional<Content> read() const;

 private:
  static constexpr std::size_t kWords = kMaxBytes / sizeof(std::uint64_t);

  // Odd during a write. Data read between two loads of the same even version is consistent: each
  // store is a release and each load an acquire, so the order is kept.
  std::atomic<std::uint64_t> version_;
  std::atomic<std::uint64_t> number_;
  std::atomic<std::uint64_t> n_bytes_;
  std::array<std::atomic<std::uint64_t>, kWords> words_;
};

/// Size of a cache line in bytes.
inline constexpr std::size_t kCacheLine = 64;

/// Size of a slot: the largest contribution to a one-shot operation.
inline constexpr std::int64_t kSlotBytes = 16 << 10;

/// Size of a staging buffer. Staging buffers pass data that lies outside the arenas.
inline constexpr std::int64_t kStagingBytes = 4 << 20;

/// Bytes that pass through a staging buffer at once: still in the cache when the peers read them.
inline constexpr std::int64_t kSegmentBytes = 256 << 10;

/// Location of the data that a rank offers to peers of the node.
enum class Exposure : std::uint16_t {
  kNothing,  ///< The rank offers no data.
  /// In the operation header: the only offer, of a size that all ranks agree on.
  kOperationHeader,
  kSlot,  ///< Completely in the rank's slot.
  /// In place in the rank's arena; must stay unchanged until all peers have read the data.
  kArena,
  kProcess,  ///< In place in private memory, by address; must stay unchanged too.
  kStaged    ///< Window by window in the staging buffers.
};

/// Data that a rank offers to another rank of the node.
struct Offer {
  std::int64_t n_bytes;
  /// Start of the data in the slot, in the arena, in the process or in each staging buffer.
  std::int64_t offset;
  /// Bytes that the rank takes from that other rank.
  std::int64_t n_bytes_taken;
};

/// Locations of a rank's input and output buffers.
struct SlotPlacement {
  /// Offsets in the arena, or -1.
  std::int64_t in_offset;
  std::int64_t out_offset;
  /// Addresses in the process if peers may read them there, otherwise 0.
  std::uint64_t in_address;
  std::uint64_t out_address;
};

/// Location of a rank's offers.
struct OfferPlacement {
  /// With kStaged: bytes of an offer in a window, and the number of windows.
  std::int64_t share_bytes;
  std::uint32_t n_windows;
  Exposure exposure;
  std::uint16_t n_offers;
  std::array<std::byte, 16> payload;  ///< The data, with kOperationHeader.
};

/// Published by a rank on entering an operation: a single cache line.
struct alignas(kCacheLine) OperationHeader {
  /// Written last: a peer that reads an operation's number also sees the rest of the header.
  std::atomic<std::uint64_t> sequence;
  /// The operation's descriptor. Stored as atomic words because stall reports read them
  /// concurrently.
  std::array<std::atomic<std::uint64_t>, 3> words;

  union {
    SlotPlacement placement;
    OfferPlacement offers;
    /// Alternatively the contribution itself: it arrives with the cache line that announces it.
    std::array<std::byte, sizeof(SlotPlacement)> payload;
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

  /// Loads with acquire: later reads are at least as recent.
  [[nodiscard]] transport::Descriptor descriptor() const {
    std::array<std::uint64_t, 3> values{};
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = words[i].load(std::memory_order_acquire);
    }
    return std::bit_cast<transport::Descriptor>(values);
  }
};

inline constexpr auto kInlineBytes = static_cast<std::int64_t>(sizeof(SlotPlacement));

static_assert(sizeof(OperationHeader) == kCacheLine);

/// A group's section of a rank's arena. Zero-initialized. Followed by two rows of offers, each with
/// an offer for every rank of the node.
struct ControlBlockMemory {
  // Operations alternate between two headers, two slots and two rows of offers. A rank can be one
  // operation ahead of a peer that still reads, but never two: entering an operation needs every
  // rank's header for it.
  std::array<OperationHeader, 2> headers;
  alignas(kCacheLine) std::atomic<std::uint64_t> stage;
  /// The stage that the rank gave up before passing it, or 0. On the cache line that peers poll for
  /// the stage.
  std::atomic<std::uint64_t> gave_up_at;
  alignas(kCacheLine) Doorbell doorbell;
  std::atomic<int> n_left;       ///< Number of the node's ranks that have left.
  std::atomic<int> is_leaving;   ///< 1 once the rank takes no further part in the group.
  std::atomic<int> reads_peers;  ///< 1 once the rank has called note_reading_peers().
  /// The last operation that the rank has finished. Peers read this line only during long waits, so
  /// the line stays in the rank's own cache.
  alignas(kCacheLine) std::atomic<std::uint64_t> finished;
  /// The last refused call, with the number of the preceding operation.
  alignas(kCacheLine) SeqlockText refused;
  /// The messages that the rank has awaited for a long time.
  alignas(kCacheLine) SeqlockText waits;
  alignas(4096) std::array<std::array<std::byte, kSlotBytes>, 2> slots;
  alignas(4096) std::array<std::array<std::byte, kStagingBytes>, 2> staging_in;
  alignas(4096) std::array<std::array<std::byte, kStagingBytes>, 2> staging_out;
};

/// Synchronization and data exchange of a group's ranks on a node: in each operation every rank
/// writes into its own arena and reads the arenas of its peers.
///
/// Each rank has an object for each group; the object keeps the arenas mapped. Not thread-safe on a
/// rank, except where "any thread" is noted. Waiting calls throw the errors of the WaitMonitor.
class ControlBlock {
 public:
  /// Returns the size of a rank's section of the control block in bytes, a multiple of the page
  /// size.
  [[nodiscard]] static std::int64_t n_bytes(int local_world_size);

  /// `ranks` are the group's ranks on this node, in order; `parts` are the sections in the arenas;
  /// `local_rank` is this rank's index.
  ControlBlock(std::span<const int> ranks, std::span<const ArenaPart> parts, int local_rank);

  [[nodiscard]] int local_world_size() const { return static_cast<int>(members_.size()); }

  [[nodiscard]] int local_rank() const { return local_rank_; }

  [[nodiscard]] int rank_of(int local_rank) const { return member(local_rank).rank; }

  /// Returns this rank's header, to be filled in for operation `sequence` before enter().
  [[nodiscard]] OperationHeader& own_header(std::uint64_t sequence) {
    return members_[self()].control_block->headers[sequence % 2];
  }

  /// Returns a peer's header. Valid after enter().
  [[nodiscard]] const OperationHeader& header(int local_rank, std::uint64_t sequence) const {
    return member(local_rank).control_block->headers[sequence % 2];
  }

  /// Returns the offer of rank `from` to rank `to`. Written by `from` before enter().
  [[nodiscard]] Offer& offer(int from, int to, std::uint64_t sequence) const {
    const std::size_t row = sequence % 2 * members_.size();
    return member(from).offers[row + static_cast<std::size_t>(to)];
  }

  /// Returns a rank's slot for one-shot contributions. Written by the rank before enter(), read by
  /// all ranks afterwards.
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

  /// Returns the memory at an offset of a rank's arena.
  [[nodiscard]] std::byte* at(int local_rank, std::int64_t offset) const {
    return member(local_rank).arena->data() + offset;
  }

  [[nodiscard]] const Arena& arena(int local_rank) const { return *member(local_rank).arena; }

  /// Publishes this rank's header, then waits until every rank of the node has published a header
  /// for this operation.
  void enter(std::uint64_t sequence,
             transport::WaitMode mode,
             transport::WaitMonitor& wait_monitor);

  /// First half of enter().
  void show_header(std::uint64_t sequence);

  /// Second half of enter().
  void wait_for_headers(std::uint64_t sequence,
                        transport::WaitMode mode,
                        transport::WaitMonitor& wait_monitor);

  /// Returns the ranks of the node that have not published a header for this operation yet.
  [[nodiscard]] std::vector<int> find_absent(std::uint64_t sequence) const;

  /// Waits until every rank of the node has called sync() as often as this rank. Does not return,
  /// but waits until `wait_monitor` throws, if a rank has called give_up() before: data that this
  /// rank read from that rank's memory may be invalid.
  void sync(transport::WaitMode mode, transport::WaitMonitor& wait_monitor);

  /// Must be called after an enter() or sync() that threw, before memory that this rank has exposed
  /// to its peers may change.
  void give_up();

  /// Publishes that this rank's part of the operation is done.
  void note_finished(std::uint64_t sequence) {
    members_[self()].control_block->finished.store(sequence, std::memory_order_relaxed);
  }

  /// Publishes that this rank has refused a call after operation `sequence`; `text` describes the
  /// call and the reason. Has no effect after leave(), nor in a forked child, which has no part in
  /// the control block. Any thread.
  void note_refused(std::uint64_t sequence, std::string_view text) UNISONO_EXCLUDES(mutex_);

  /// Publishes the messages that this rank has awaited for a long time, as text; "" withdraws the
  /// text. Conditions as for note_refused().
  void note_waits(std::string_view text) UNISONO_EXCLUDES(mutex_);

  /// Returns the position of a rank of the node, read from its headers. Any thread.
  [[nodiscard]] transport::RankProgress rank_progress(int local_rank) const;

  /// Returns the progress of this rank; std::nullopt after leave(). Any thread.
  [[nodiscard]] std::optional<transport::RankProgress> own_progress() const
      UNISONO_EXCLUDES(mutex_);

  /// Publishes that this rank takes no further part, and wakes the ranks that wait for this rank.
  void announce_leave() const;

  /// Returns true if a rank of the node has called announce_leave(). All earlier work of that rank
  /// in the group is visible then. After this rank's own leave() the result is true for every rank.
  /// Any thread.
  [[nodiscard]] bool is_leaving(int local_rank) const UNISONO_EXCLUDES(mutex_);

  /// Publishes that this rank can and will read its peers' private memory.
  void note_reading_peers() const {
    members_[self()].control_block->reads_peers.store(1, std::memory_order_relaxed);
  }

  /// Returns true if all ranks of the node have called note_reading_peers().
  [[nodiscard]] bool do_all_read_peers() const;

  /// Ends this rank's access to its peers' sections. Only note_refused(), note_waits(),
  /// own_progress() and is_leaving() may be called afterwards.
  void leave() UNISONO_EXCLUDES(mutex_);

  /// Returns true if every rank of the node has left the control block with the section at
  /// `offset_bytes` of `arena`. The memory can then be reused.
  [[nodiscard]] static bool have_all_left(const Arena& arena,
                                          std::int64_t offset_bytes,
                                          int local_world_size);

  /// Makes this rank's waits poll again. Any thread.
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
  pid_t pid_;            // Process in which the sections are mapped.
  mutable Mutex mutex_;  // Guards writes of this rank's notes too.
  bool has_left_ UNISONO_GUARDED_BY(mutex_) = false;
};

/// Makes the owner's next write to `n_bytes` bytes faster where that pays; changes no byte. Called
/// by the only reader of the bytes, after the read and before the owner may write again.
///
/// AMD's CPUs take 7 ns for a store to a cache line that another core has only read, but 1.6 ns
/// after a write by that core (EPYC, from 16 KiB on). The function therefore rewrites a byte of
/// each line with the present value.
void hand_back(std::byte* bytes, std::size_t n_bytes) noexcept;

/// Copies `n_bytes` bytes to `to` and hands the source back as hand_back() does.
void take_over(std::byte* to, std::byte* from, std::size_t n_bytes) noexcept;

}  // namespace unisono::shm
