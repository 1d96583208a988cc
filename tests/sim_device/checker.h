#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/mutex.h"

namespace sim {

/// A vector clock: the number of launches of each stream that happened before, by stream number.
using Clock = std::vector<std::uint64_t>;

/// Bytes that a task reads or writes. A read-modify-write counts as a write.
struct Access {
  std::uintptr_t begin;
  std::uintptr_t end;
  bool is_write;
  const char* operation;  ///< Name for reports; must live as long as the checker.
};

/// Finds accesses to the same bytes that no event and no host wait orders.
///
/// Each stream has a vector clock. An event carries the clock of the stream that recorded it; a
/// wait merges that clock into the waiting stream's. A host wait merges the clock into a single
/// clock for all host threads, and each launch starts from there. A block of memory keeps marks of
/// its latest accesses. Two overlapping accesses, at least one of them a write, are a race unless
/// the later launch's clock covers the earlier one.
///
/// The result does not depend on the time at which tasks run. Limits: accesses of the host are
/// unknown, and order between host threads counts as order once any of them has waited.
/// Thread-safe.
class Checker {
 public:
  /// Returns the number of the new stream. `name` appears in reports.
  std::size_t add_stream(std::string name);

  /// Notes the accesses of a task that enters the stream.
  void launch(std::size_t stream, std::span<const Access> accesses);

  /// Returns the clock of an event that the stream records.
  Clock record(std::size_t stream);

  /// The stream waits for an event.
  void wait(std::size_t stream, const Clock& event);

  /// A host thread has waited for an event, or for a stream up to this clock.
  void host_waited(const Clock& reached);

  /// Starts the history of a block, live and without marks.
  void add_block(std::uintptr_t begin, std::size_t size);

  /// Ends the use of a block: a write of all its bytes, launched on `stream`. Accesses to a block
  /// that is not live are reported.
  void release_block(std::uintptr_t begin, std::size_t stream);

  /// Ends the use of a pinned block by the host, without any marks of it.
  void release_host_block(std::uintptr_t begin);

  /// A released block is in use again.
  void reuse_block(std::uintptr_t begin);

  /// Removes the marks of a block that an event covers. The allocator has waited for that event.
  void forget(std::uintptr_t begin, const Clock& event);

  /// Returns true if host waits cover all tasks that use the block of `pointer`.
  [[nodiscard]] bool host_has_waited(const void* pointer);

  /// Returns and drops the reports: one for each pair of operations and streams.
  [[nodiscard]] std::vector<std::string> take_races();

 private:
  struct Mark {
    Access access;
    std::size_t stream;
    std::uint64_t time;
  };

  struct History {
    std::size_t size;
    bool live;
    std::vector<Mark> marks;
  };

  struct StreamState {
    std::string name;
    Clock clock;
  };

  History* find(std::uintptr_t address) UNISONO_REQUIRES(mutex_);
  void advance(std::size_t stream) UNISONO_REQUIRES(mutex_);
  void note(History& history, const Access& access, std::size_t stream) UNISONO_REQUIRES(mutex_);
  void report(std::string text) UNISONO_REQUIRES(mutex_);

  unisono::Mutex mutex_;
  std::vector<StreamState> streams_ UNISONO_GUARDED_BY(mutex_);
  std::map<std::uintptr_t, History> blocks_ UNISONO_GUARDED_BY(mutex_);
  Clock host_ UNISONO_GUARDED_BY(mutex_);
  std::vector<std::string> races_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace sim
