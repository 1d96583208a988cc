#include "unisono/launch/output/line_collapser.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/launch/output/stream_selection.h"

namespace unisono::launch {
namespace {

constexpr std::chrono::milliseconds kWait{200};
// What is looked through for each line.
constexpr std::size_t kMaxEntries = 256;

}  // namespace

void LineCollapser::add(int rank, Stream stream, std::string_view text, Time now) {
  std::uint64_t& next = next_[rank];
  const std::size_t begin = next > n_emitted_ ? static_cast<std::size_t>(next - n_emitted_) : 0;
  const auto found = std::find_if(
      entries_.begin() + static_cast<std::ptrdiff_t>(begin),
      entries_.end(),
      [&](const Entry& entry) { return entry.stream == stream && entry.text == text; });
  const auto index = static_cast<std::size_t>(found - entries_.begin());
  if (found == entries_.end()) {
    entries_.push_back({stream, std::string(text), {rank}, now});
  } else {
    found->ranks.insert(rank);
  }
  next = n_emitted_ + index + 1;
  while (!entries_.empty() &&
         (entries_.front().ranks.size() == n_ranks_ || entries_.size() > kMaxEntries)) {
    emit_first();
  }
}

void LineCollapser::on_time(Time now) {
  while (!entries_.empty() && now - entries_.front().since >= kWait) {
    emit_first();
  }
}

void LineCollapser::flush() {
  while (!entries_.empty()) {
    emit_first();
  }
}

Deadline LineCollapser::deadline() const {
  return entries_.empty() ? Deadline::never() : Deadline::at(entries_.front().since + kWait);
}

void LineCollapser::emit_first() {
  const Entry& entry = entries_.front();
  const std::vector<int> ranks(entry.ranks.begin(), entry.ranks.end());
  emit_(ranks, entry.stream, entry.text);
  entries_.pop_front();
  ++n_emitted_;
}

}  // namespace unisono::launch
