#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/cli/doctor/report.h"

namespace unisono::cli::doctor {
namespace {

constexpr double kMicro = 1e6;
constexpr double kGiga = 1e9;

// Bytes of the character that `text` begins with; 0 if it begins with none of UTF-8.
std::size_t character_size(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  std::size_t size = 1;
  if (first >= 0x80) {
    size = first >= 0xC2 && first < 0xE0 ? 2 : first >= 0xE0 && first < 0xF0 ? 3 : 4;
    if (first < 0xC2 || first > 0xF4 || size > text.size()) {
      return 0;
    }
  }
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) {
      return 0;
    }
  }
  // Longer than needed, halves of pairs, and above the last character.
  const bool is_none = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F) ||
                       (first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F);
  return is_none ? 0 : size;
}

std::string quoted(std::string_view text) {
  std::string json = "\"";
  while (!text.empty()) {
    const std::size_t size = character_size(text);
    const char c = text.front();
    if (size == 0) {
      json += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      json += {'\\', c};
    } else if (size == 1 && static_cast<unsigned char>(c) < 0x20) {
      json += fmt::format("\\u{:04x}", c);
    } else {
      json += text.substr(0, size);
    }
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return json + '"';
}

template <class List, class Format>
std::string list(const List& items, const Format& format) {
  std::string json = "[";
  for (const auto& item : items) {
    json += (json.size() == 1 ? "" : ",") + format(item);
  }
  return json + "]";
}

std::string numbers(const std::vector<int>& ranks) {
  return list(ranks, [](int rank) { return fmt::format("{}", rank); });
}

std::string format_row(const Row& row) {
  return fmt::format(R"({{"state":{},"topic":{},"text":{},"advice":{},"ranks":{}}})",
                     quoted(to_string(row.finding.state)),
                     quoted(row.finding.topic),
                     quoted(row.finding.text),
                     quoted(row.finding.advice),
                     numbers(row.ranks));
}

std::string format_link(const Link& link) {
  return fmt::format(
      R"({{"ranks":[{},{}],"latency_us":{:.6g},"bandwidth_gb_per_s":{:.6g},)"
      R"("bandwidth_back_gb_per_s":{:.6g},"clock_difference_us":{:.6g},"clock_uncertainty_us":{:.6g}}})",
      link.from,
      link.to,
      link.latency * kMicro,
      link.bandwidth / kGiga,
      link.bandwidth_back / kGiga,
      link.clock_difference * kMicro,
      link.clock_uncertainty * kMicro);
}

}  // namespace

std::string to_json(const Report& report) {
  return fmt::format(R"({{"problems":{},"warnings":{},"nodes":{},"findings":{},"pairs":{}}})",
                     report.count(State::kProblem),
                     report.count(State::kWarning),
                     list(report.nodes,
                          [](const Node& node) {
                            return fmt::format(R"({{"name":{},"ranks":{}}})",
                                               quoted(node.name),
                                               numbers(node.ranks));
                          }),
                     list(report.rows, format_row),
                     list(report.links, format_link));
}

}  // namespace unisono::cli::doctor
