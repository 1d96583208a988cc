#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "unisono/pipeline/as_index.h"
#include "unisono/pipeline/render.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/pipeline/timeline.h"

namespace unisono::pipeline {
namespace {

// In the image's units.
constexpr double kNameWidth = 70;
constexpr double kPlotWidth = 1200;
constexpr double kMargin = 10;
constexpr double kRowHeight = 30;
constexpr double kBarHeight = 24;
constexpr double kAxisHeight = 40;
constexpr double kLegendHeight = 30;
constexpr double kDigitWidth = 7;

// A lighter color for stages that are not a rank's first.
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

// 1, 2 or 5 times a power of ten, about a tenth of the whole.
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
