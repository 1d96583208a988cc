#include "sim_device/checker.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace sim {
namespace {

// A faulty program may race in each operation.
constexpr std::size_t kMaxReports = 100;

void merge(Clock& into, const Clock& from) {
  if (into.size() < from.size()) {
    into.resize(from.size());
  }
  for (std::size_t i = 0; i < from.size(); ++i) {
    into[i] = std::max(into[i], from[i]);
  }
}

bool covers(const Clock& clock, std::size_t stream, std::uint64_t time) {
  return stream < clock.size() && time <= clock[stream];
}

std::string describe(const Access& access, const std::string& stream) {
  return std::string(access.operation) + (access.is_write ? " writes" : " reads") + " on " + stream;
}

}  // namespace

std::size_t Checker::add_stream(std::string name) {
  const unisono::MutexLock lock(mutex_);
  const std::size_t number = streams_.size();
  streams_.push_back({std::move(name), Clock(number + 1)});
  return number;
}

void Checker::advance(std::size_t stream) {
  Clock& clock = streams_[stream].clock;
  merge(clock, host_);
  ++clock[stream];
}

void Checker::launch(std::size_t stream, std::span<const Access> accesses) {
  const unisono::MutexLock lock(mutex_);
  advance(stream);
  for (const Access& access : accesses) {
    if (access.begin == access.end) {
      continue;
    }
    History* history = find(access.begin);
    if (history == nullptr) {
      continue;  // Pageable host memory.
    }
    if (!history->live) {
      report(describe(access, streams_[stream].name) +
             " memory that was released: hold the tensor until the call");
    }
    note(*history, access, stream);
  }
}

void Checker::note(History& history, const Access& access, std::size_t stream) {
  const Clock& clock = streams_[stream].clock;
  std::erase_if(history.marks, [&](const Mark& mark) UNISONO_TSA(no_thread_safety_analysis) {
    const bool is_ordered = mark.stream == stream || covers(clock, mark.stream, mark.time);
    const bool overlaps = mark.access.begin < access.end && access.begin < mark.access.end;
    if (overlaps && !is_ordered && (mark.access.is_write || access.is_write)) {
      report(describe(access, streams_[stream].name) + " bytes that " +
             describe(mark.access, streams_[mark.stream].name) +
             ", and no event orders the two: let the later stream wait for an event of the earlier "
             "one, or call record_stream() before the tensor is released");
    }
    // Whatever conflicts with the covered mark later conflicts with the new one as well.
    const bool is_covered = access.begin <= mark.access.begin && mark.access.end <= access.end;
    return is_ordered && is_covered && (access.is_write || !mark.access.is_write);
  });
  history.marks.push_back({access, stream, clock[stream]});
}

void Checker::report(std::string text) {
  if (races_.size() < kMaxReports && std::ranges::find(races_, text) == races_.end()) {
    races_.push_back(std::move(text));
  }
}

Checker::History* Checker::find(std::uintptr_t address) {
  const auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) {
    return nullptr;
  }
  auto& [begin, history] = *std::prev(next);
  return address < begin + history.size ? &history : nullptr;
}

Clock Checker::record(std::size_t stream) {
  const unisono::MutexLock lock(mutex_);
  Clock& clock = streams_[stream].clock;
  merge(clock, host_);
  return clock;
}

void Checker::wait(std::size_t stream, const Clock& event) {
  const unisono::MutexLock lock(mutex_);
  merge(streams_[stream].clock, event);
}

void Checker::host_waited(const Clock& reached) {
  const unisono::MutexLock lock(mutex_);
  merge(host_, reached);
}

void Checker::add_block(std::uintptr_t begin, std::size_t size) {
  const unisono::MutexLock lock(mutex_);
  blocks_[begin] = {size, true, {}};
}

void Checker::release_block(std::uintptr_t begin, std::size_t stream) {
  const unisono::MutexLock lock(mutex_);
  History& history = blocks_.at(begin);
  advance(stream);
  note(history, {begin, begin + history.size, true, "the release of the memory"}, stream);
  // Unordered marks are reported above. The next tensor in the block shall not inherit them.
  history.marks.erase(history.marks.begin(), std::prev(history.marks.end()));
  history.live = false;
}

void Checker::release_host_block(std::uintptr_t begin) {
  const unisono::MutexLock lock(mutex_);
  History& history = blocks_.at(begin);
  history.marks.clear();
  history.live = false;
}

void Checker::reuse_block(std::uintptr_t begin) {
  const unisono::MutexLock lock(mutex_);
  blocks_.at(begin).live = true;
}

void Checker::forget(std::uintptr_t begin, const Clock& event) {
  const unisono::MutexLock lock(mutex_);
  std::erase_if(blocks_.at(begin).marks,
                [&](const Mark& mark) { return covers(event, mark.stream, mark.time); });
}

bool Checker::host_has_waited(const void* pointer) {
  const unisono::MutexLock lock(mutex_);
  const History* history = find(reinterpret_cast<std::uintptr_t>(pointer));
  return history == nullptr ||
         std::ranges::all_of(history->marks,
                             [&](const Mark& mark) UNISONO_TSA(no_thread_safety_analysis) {
                               return covers(host_, mark.stream, mark.time);
                             });
}

std::vector<std::string> Checker::take_races() {
  const unisono::MutexLock lock(mutex_);
  return std::exchange(races_, {});
}

}  // namespace sim
