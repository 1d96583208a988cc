#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>

#include "unisono/pipeline/as_index.h"
#include "unisono/pipeline/render.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/pipeline/timeline.h"

namespace unisono::pipeline {
namespace {

constexpr std::string_view kLegend =
    "F forward, B backward, I its input gradients, W its weight gradients; lower case: in another "
    "stage than the rank's first; . idle\n";

constexpr double kRounding = 1e-9;

// So many columns that each action shows its letter and the number of its chunk, or as many as
// there are; whole ones for the shortest action, so that actions of the same length look alike.
double columns_per_time(const Timeline& timeline, int max_columns) {
  double scale = 0;
  double shortest = step_time(timeline);
  for (const auto& spans : timeline.ranks) {
    for (const Span& span : spans) {
      const double time = span.end - span.start;
      if (time > 0) {
        const double label = 1 + static_cast<double>(std::to_string(span.action.chunk).size());
        scale = std::max(scale, (label + 1) / time);
        shortest = std::min(shortest, time);
      }
    }
  }
  scale = std::min(scale, max_columns / step_time(timeline));
  const double n_columns = std::floor(scale * shortest + kRounding);
  return n_columns >= 1 ? n_columns / shortest : scale;
}

std::string label_of(const Action& action, bool is_first_stage, std::size_t n_columns) {
  const char letter = letter_of(action.kind);
  const auto shown =
      is_first_stage ? letter : static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  std::string label = fmt::format("{}{}", shown, action.chunk);
  if (label.size() > n_columns) {
    label.resize(std::min<std::size_t>(n_columns, 1));
  }
  label.resize(n_columns, ' ');
  return label;
}

}  // namespace

std::string render_text(const Timeline& timeline, int max_columns) {
  const int n_ranks = static_cast<int>(timeline.ranks.size());
  const double whole = step_time(timeline);
  const double scale = whole > 0 ? columns_per_time(timeline, max_columns) : 0;
  const double start = start_time(timeline);
  const auto column_of = [&](double time) {
    return static_cast<std::size_t>(std::lround((time - start) * scale));
  };
  const auto n_columns = static_cast<std::size_t>(std::lround(whole * scale));
  const std::size_t name_width = std::to_string(std::max(n_ranks - 1, 0)).size();
  std::string text;
  for (int rank = 0; rank < n_ranks; ++rank) {
    std::string line(n_columns, '.');
    const int first = first_stage(timeline, rank);
    for (const Span& span : timeline.ranks[as_index(rank)]) {
      const std::size_t begin = column_of(span.start);
      const std::size_t end = column_of(span.end);
      line.replace(
          begin, end - begin, label_of(span.action, span.action.stage == first, end - begin));
    }
    text += fmt::format("rank {:{}} |{}|\n", rank, name_width, line);
  }
  return text + std::string(kLegend);
}

}  // namespace unisono::pipeline
