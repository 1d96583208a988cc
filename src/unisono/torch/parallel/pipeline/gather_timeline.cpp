#include "unisono/torch/parallel/pipeline/gather_timeline.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/pipeline/as_index.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/pipeline/timeline.h"

namespace unisono::parallel {

using pipeline::as_index;

namespace {

// A span as it is sent.
constexpr std::size_t kNumbers = 5;

std::array<double, kNumbers> numbers_of(const pipeline::Span& span, double shift) {
  return {static_cast<double>(span.action.kind),
          static_cast<double>(span.action.stage),
          static_cast<double>(span.action.chunk),
          span.start + shift,
          span.end + shift};
}

pipeline::Span span_of(std::span<const double> numbers) {
  return {.action = {.kind = static_cast<pipeline::ActionKind>(numbers[0]),
                     .stage = static_cast<int>(numbers[1]),
                     .chunk = static_cast<int>(numbers[2])},
          .start = numbers[3],
          .end = numbers[4]};
}

void begin_at_zero(pipeline::Timeline& timeline) {
  const double start = pipeline::start_time(timeline);
  for (std::vector<pipeline::Span>& spans : timeline.ranks) {
    for (pipeline::Span& span : spans) {
      span.start -= start;
      span.end -= start;
    }
  }
}

}  // namespace

double steady_now_ms() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

pipeline::Timeline gather_timeline(ProcessGroup& group,
                                   const pipeline::Schedule& schedule,
                                   const OwnSpans& own,
                                   std::optional<std::chrono::milliseconds> timeout) {
  double origin = 0;
  if (group.local_world_size() != group.world_size()) {
    group.barrier({.timeout = timeout, .label = "timeline"});
    origin = steady_now_ms();
  }
  std::size_t most = 0;
  for (const std::vector<pipeline::Action>& order : schedule.orders) {
    most = std::max(most, order.size());
  }
  std::vector<double> mine(most * kNumbers, -1.0);  // A kind below 0 is no span.
  for (std::size_t i = 0; i < own.spans.size(); ++i) {
    std::ranges::copy(numbers_of(own.spans[i], own.begin_ms - origin),
                      mine.begin() + static_cast<std::ptrdiff_t>(i * kNumbers));
  }
  std::vector<double> all(mine.size() * as_index(group.world_size()));
  group.all_gather(as_buffer(std::span(mine)),
                   as_buffer(std::span(all)),
                   {.timeout = timeout, .label = "timeline"});
  pipeline::Timeline timeline;
  timeline.ranks.resize(as_index(group.world_size()));
  for (std::size_t i = 0; i < all.size(); i += kNumbers) {
    if (all[i] >= 0) {
      timeline.ranks[i / mine.size()].push_back(span_of(std::span(all).subspan(i, kNumbers)));
    }
  }
  begin_at_zero(timeline);
  return timeline;
}

}  // namespace unisono::parallel
