#include "unisono/pipeline/timeline.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "unisono/pipeline/as_index.h"
#include "unisono/pipeline/schedule.h"

namespace unisono::pipeline {

double start_time(const Timeline& timeline) {
  double first = std::numeric_limits<double>::infinity();
  for (const std::vector<Span>& spans : timeline.ranks) {
    for (const Span& span : spans) {
      first = std::min(first, span.start);
    }
  }
  return first;
}

double step_time(const Timeline& timeline) {
  const double first = start_time(timeline);
  double last = first;
  for (const std::vector<Span>& spans : timeline.ranks) {
    for (const Span& span : spans) {
      last = std::max(last, span.end);
    }
  }
  return first < last ? last - first : 0;
}

double busy_time(const Timeline& timeline, int rank) {
  double sum = 0;
  for (const Span& span : timeline.ranks[as_index(rank)]) {
    sum += span.end - span.start;
  }
  return sum;
}

double bubble(const Timeline& timeline, int rank) {
  const double whole = step_time(timeline);
  return whole > 0 ? 1 - busy_time(timeline, rank) / whole : 0;
}

double bubble(const Timeline& timeline) {
  double sum = 0;
  for (int rank = 0; rank < static_cast<int>(timeline.ranks.size()); ++rank) {
    sum += bubble(timeline, rank);
  }
  return timeline.ranks.empty() ? 0 : sum / static_cast<double>(timeline.ranks.size());
}

int first_stage(const Timeline& timeline, int rank) {
  const std::vector<Span>& spans = timeline.ranks[as_index(rank)];
  const auto first = std::min_element(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return a.action.stage < b.action.stage;
  });
  return first == spans.end() ? 0 : first->action.stage;
}

double peak_activations(const Timeline& timeline, int rank, const std::vector<double>& sizes) {
  double live = 0;
  double peak = 0;
  for (const Span& span : timeline.ranks[as_index(rank)]) {
    const double size = sizes.empty() ? 1 : sizes[as_index(span.action.stage)];
    live += change_of_activations(span.action.kind) * size;
    peak = std::max(peak, live);
  }
  return peak;
}

}  // namespace unisono::pipeline
