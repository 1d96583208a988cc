#include "unisono/launch/output/line_format.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "unisono/launch/output/stream_selection.h"
#include "unisono/launch/rank_ranges.h"

namespace unisono::launch {
namespace {

using Json = nlohmann::ordered_json;

// Cyan, green, yellow, blue, magenta of every terminal, by rank.
std::string coloured(const std::string& text, int rank, bool has_colour) {
  constexpr std::array kColours{36, 32, 33, 34, 35};
  return has_colour ? fmt::format("\x1b[{}m{}\x1b[0m",
                                  kColours[static_cast<std::size_t>(rank) % kColours.size()],
                                  text)
                    : text;
}

struct Replacement {
  std::string_view name;
  std::string value;
};

// As string.Template.safe_substitute() of Python: "$name", "${name}", and "$$" for a dollar.
std::string substitute(std::string_view text, std::span<const Replacement> values) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz_";
  std::string result;
  for (std::size_t dollar = text.find('$'); dollar != std::string_view::npos;
       dollar = text.find('$')) {
    result += text.substr(0, dollar);
    text.remove_prefix(dollar + 1);
    const bool has_braces = text.starts_with('{');
    const std::size_t begin = has_braces ? 1 : 0;
    const std::size_t end = std::min(text.find_first_not_of(kLetters, begin), text.size());
    const auto found =
        std::ranges::find(values, text.substr(begin, end - begin), &Replacement::name);
    if (found != values.end() && (!has_braces || text.substr(end).starts_with('}'))) {
      result += found->value;
      text.remove_prefix(has_braces ? end + 1 : end);
    } else {
      result += '$';
      text.remove_prefix(text.starts_with('$') ? 1 : 0);
    }
  }
  return result.append(text);
}

Json with_time(const LineFormat& format) {
  using std::chrono::microseconds;
  const auto now = std::chrono::floor<microseconds>(std::chrono::system_clock::now());
  const auto second = std::chrono::floor<std::chrono::seconds>(now);
  Json json{{"time", fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z", second, (now - second).count())}};
  if (!format.host.empty()) {
    json["host"] = format.host;
  }
  return json;
}

std::string to_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string rank_prefix(const LineFormat& format, int rank, int local_rank, bool has_colour) {
  if (!format.prefix_template.empty()) {
    const std::array<Replacement, 3> values{{{"role_name", format.role},
                                             {"rank", fmt::format("{}", rank)},
                                             {"local_rank", fmt::format("{}", local_rank)}}};
    return coloured(substitute(format.prefix_template, values), rank, has_colour);
  }
  const std::string name = format.host.empty() ? fmt::format("[rank {}]", rank)
                                               : fmt::format("[{}:{}]", format.host, rank);
  return coloured(name, rank, has_colour) + " ";
}

std::string format_collapsed(const LineFormat& format,
                             std::span<const int> ranks,
                             std::string_view text,
                             bool has_colour) {
  const std::string name =
      fmt::format("[{}{}{}]", format.host, format.host.empty() ? "" : ":", rank_ranges(ranks));
  return fmt::format("{} {}\n", coloured(name, ranks.front(), has_colour), text);
}

std::string format_json(const LineFormat& format,
                        std::span<const int> ranks,
                        Stream stream,
                        std::string_view text) {
  Json json = with_time(format);
  if (ranks.size() == 1) {
    json["rank"] = ranks.front();
  } else {
    json["ranks"] = ranks;
  }
  json["stream"] = stream == Stream::kOut ? "stdout" : "stderr";
  json["text"] = text;
  return to_line(json);
}

std::string format_message(const LineFormat& format, std::string_view text) {
  const std::string label =
      format.host.empty() ? "[unisono run]" : fmt::format("[unisono run on {}]", format.host);
  std::string lines;
  while (!text.empty()) {
    const std::size_t length = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, length);
    if (format.is_json) {
      Json json = with_time(format);
      json["source"] = "launcher";
      json["text"] = line;
      lines += to_line(json);
    } else {
      lines += fmt::format("{} {}\n", label, line);
    }
    text.remove_prefix(std::min(length + 1, text.size()));
  }
  return lines;
}

}  // namespace unisono::launch
