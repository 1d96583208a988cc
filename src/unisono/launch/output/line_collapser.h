#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "unisono/base/deadline.h"
#include "unisono/launch/output/stream_selection.h"

namespace unisono::launch {

/// Makes equal lines of several ranks one, which come within 200 ms of each other. The lines of
/// each rank stay in their order.
class LineCollapser {
 public:
  using Time = Deadline::Clock::time_point;
  /// Gets the sorted ranks that have written the line.
  using Emit = std::function<void(std::span<const int> ranks, Stream stream, std::string_view)>;

  /// Lines of `n_ranks` are not held back any longer.
  LineCollapser(std::size_t n_ranks, Emit emit) : n_ranks_(n_ranks), emit_(std::move(emit)) {}

  void add(int rank, Stream stream, std::string_view text, Time now);

  /// Emits what has waited long enough.
  void on_time(Time now);

  /// Emits all.
  void flush();

  /// When on_time() is due.
  [[nodiscard]] Deadline deadline() const;

 private:
  struct Entry {
    Stream stream;
    std::string text;
    std::set<int> ranks;
    Time since;
  };

  void emit_first();

  std::size_t n_ranks_;
  Emit emit_;
  std::deque<Entry> entries_;
  std::uint64_t n_emitted_ = 0;
  std::map<int, std::uint64_t> next_;  // Of each rank: the first entry, counted from the start,
                                       // that its next line may be.
};

}  // namespace unisono::launch
