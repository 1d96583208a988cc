#include "unisono/launch/output/lines.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <vector>

#include "unisono/launch/report.h"

namespace unisono::launch {

std::string_view last_frame(std::string_view text) {
  while (text.ends_with('\r')) {
    text.remove_suffix(1);
  }
  return text.substr(text.rfind('\r') + 1);  // The whole text if it has no carriage return.
}

void LineSplitter::feed(std::string_view bytes, const std::function<void(const Line&)>& on_line) {
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    const std::size_t length = std::min(newline, bytes.size());
    const std::size_t taken = std::min(length, max_bytes_ - pending_.size());
    pending_.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    if (taken < length) {
      make_room(on_line);
    } else if (newline != std::string_view::npos) {
      bytes.remove_prefix(1);
      emit(false, on_line);
    }
  }
}

void LineSplitter::clear() {
  offset_ += pending_.size();
  pending_.clear();
}

void LineSplitter::emit(bool is_cut, const std::function<void(const Line&)>& on_line) {
  on_line({pending_, offset_, is_cut});
  offset_ += pending_.size() + (is_cut ? 0 : 1);
  pending_.clear();
}

void LineSplitter::make_room(const std::function<void(const Line&)>& on_line) {
  const std::size_t last_return = pending_.rfind('\r');
  if (last_return == std::string::npos || last_return == 0) {
    emit(true, on_line);
    return;
  }
  offset_ += last_return;
  pending_.erase(0, last_return);
}

namespace {

using Json = nlohmann::ordered_json;

// Adds a colour that depends on the rank: cyan, green, yellow, blue or magenta, which every colour
// terminal has.
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

// Replaces names like Python's string.Template.safe_substitute(): "$name", "${name}", and "$$" for
// a dollar sign.
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
                        OutputStream stream,
                        std::string_view text) {
  Json json = with_time(format);
  if (ranks.size() == 1) {
    json["rank"] = ranks.front();
  } else {
    json["ranks"] = ranks;
  }
  json["stream"] = stream == OutputStream::kOut ? "stdout" : "stderr";
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

namespace {

constexpr std::chrono::milliseconds kWait{200};
// Number of entries that are searched for each line.
constexpr std::size_t kMaxEntries = 256;

}  // namespace

void LineCollapser::add(int rank, OutputStream stream, std::string_view text, Time now) {
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
