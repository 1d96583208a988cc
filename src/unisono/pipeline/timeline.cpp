#include "unisono/pipeline/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <string_view>

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

namespace {

constexpr std::string_view kLegend =
    "F forward, B backward, I its input gradients, W its weight gradients; lower case: in another "
    "stage than the rank's first; . idle\n";

constexpr double kRounding = 1e-9;

// Returns the scale at which every action shows a letter and the number of the chunk, within
// `max_columns`. The shortest action has a whole number of columns, so that equal actions have
// equal widths.
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

namespace {

// Lengths in the units of the image.
constexpr double kNameWidth = 70;
constexpr double kPlotWidth = 1200;
constexpr double kMargin = 10;
constexpr double kRowHeight = 30;
constexpr double kBarHeight = 24;
constexpr double kAxisHeight = 40;
constexpr double kLegendHeight = 30;
constexpr double kDigitWidth = 7;

// Stages that are not the first of their rank have lighter colors.
std::string_view color_of(ActionKind kind, bool is_first_stage) {
  switch (kind) {
    case ActionKind::kForward:
      return is_first_stage ? "#4878cf" : "#a6c0ee";
    case ActionKind::kBackward:
      return is_first_stage ? "#4a9a5b" : "#a5d6ae";
    case ActionKind::kBackwardInput:
      return is_first_stage ? "#3a9a9a" : "#9fd8d8";
    case ActionKind::kBackwardWeight:
      return is_first_stage ? "#c98a2d" : "#efcf9c";
  }
  return "#000000";
}

std::string bar(const Span& span, double x, double y, double width, bool is_first_stage) {
  const std::string chunk = std::to_string(span.action.chunk);
  std::string text = fmt::format(
      "<g><title>{}: {:.6g} to {:.6g}</title><rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" "
      "height=\"{:.2f}\" fill=\"{}\" stroke=\"#ffffff\" stroke-width=\"0.5\"/>",
      describe(span.action),
      span.start,
      span.end,
      x,
      y,
      width,
      kBarHeight,
      color_of(span.action.kind, is_first_stage));
  if (static_cast<double>(chunk.size()) * kDigitWidth <= width) {
    text +=
        fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\" text-anchor=\"middle\" fill=\"{}\">{}</text>",
                    x + width / 2,
                    y + kBarHeight - 8,
                    is_first_stage ? "#ffffff" : "#000000",
                    chunk);
  }
  return text + "</g>\n";
}

// Returns 1, 2 or 5 times a power of ten, about a tenth of the whole.
double distance_of_marks(double whole) {
  const double power = std::pow(10, std::floor(std::log10(whole / 10)));
  for (const double factor : {1, 2, 5}) {
    if (factor * power >= whole / 10) {
      return factor * power;
    }
  }
  return 10 * power;
}

std::string axis(double whole, double y, const std::string& unit) {
  std::string text;
  const double distance = distance_of_marks(whole);
  const int n_marks = static_cast<int>(whole / distance);
  for (int mark = 0; mark <= n_marks; ++mark) {
    const double x = kNameWidth + mark * distance / whole * kPlotWidth;
    text += fmt::format(
        "<line x1=\"{0:.2f}\" y1=\"{1:.2f}\" x2=\"{0:.2f}\" y2=\"{2:.2f}\" "
        "stroke=\"#808080\"/><text x=\"{0:.2f}\" y=\"{3:.2f}\" "
        "text-anchor=\"middle\">{4:.6g}{5}</text>\n",
        x,
        y,
        y + 5,
        y + 20,
        mark * distance,
        mark == n_marks ? " " + unit : "");
  }
  return text;
}

std::string legend(double y) {
  std::string text;
  double x = kNameWidth;
  for (const ActionKind kind : {ActionKind::kForward,
                                ActionKind::kBackward,
                                ActionKind::kBackwardInput,
                                ActionKind::kBackwardWeight}) {
    text += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"14\" height=\"14\" fill=\"{}\"/>"
        "<text x=\"{:.2f}\" y=\"{:.2f}\">{}</text>\n",
        x,
        y,
        color_of(kind, true),
        x + 20,
        y + 12,
        to_string(kind));
    x += 150;
  }
  return text + fmt::format(
                    "<text x=\"{:.2f}\" y=\"{:.2f}\">lighter: in another stage than the "
                    "rank's first</text>\n",
                    x,
                    y + 12);
}

}  // namespace

std::string render_svg(const Timeline& timeline, const std::string& unit) {
  const int n_ranks = static_cast<int>(timeline.ranks.size());
  const double whole = step_time(timeline);
  const double start = start_time(timeline);
  const double axis_y = kMargin + n_ranks * kRowHeight;
  const double width = kNameWidth + kPlotWidth + 6 * kMargin;
  const double height = axis_y + kAxisHeight + kLegendHeight;
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
      width,
      height);
  for (int rank = 0; rank < n_ranks; ++rank) {
    const double y = kMargin + rank * kRowHeight;
    const int first = first_stage(timeline, rank);
    text += fmt::format(
        "<text x=\"{:.2f}\" y=\"{:.2f}\">rank {}</text>\n"
        "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" "
        "fill=\"#eeeeee\"/>\n",
        kMargin,
        y + kBarHeight - 8,
        rank,
        kNameWidth,
        y,
        kPlotWidth,
        kBarHeight);
    for (const Span& span : timeline.ranks[as_index(rank)]) {
      const double scale = whole > 0 ? kPlotWidth / whole : 0;
      text += bar(span,
                  kNameWidth + (span.start - start) * scale,
                  y,
                  (span.end - span.start) * scale,
                  span.action.stage == first);
    }
  }
  if (whole > 0) {
    text += axis(whole, axis_y, unit);
  }
  return text + legend(axis_y + kAxisHeight) + "</svg>\n";
}

}  // namespace unisono::pipeline
