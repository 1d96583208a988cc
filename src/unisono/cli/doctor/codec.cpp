#include "unisono/cli/doctor/codec.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/bytes.h"

namespace unisono::cli::doctor {
namespace {

constexpr std::size_t kMaxText = std::size_t{1} << 20;
constexpr double Link::* kFigures[] = {&Link::latency,
                                       &Link::bandwidth,
                                       &Link::bandwidth_back,
                                       &Link::clock_difference,
                                       &Link::clock_uncertainty};

void put(ByteWriter& writer, const Findings& findings) {
  writer.put(static_cast<std::uint32_t>(findings.size()));
  for (const Finding& finding : findings) {
    writer.put(static_cast<std::uint8_t>(finding.state));
    writer.put_string(finding.topic);
    writer.put_string(finding.text);
    writer.put_string(finding.advice);
  }
}

bool take(ByteReader& reader, Findings& findings) {
  const auto count = reader.get<std::uint32_t>();
  for (std::uint32_t i = 0; count && i < *count; ++i) {
    const auto state = reader.get<std::uint8_t>();
    const auto topic = reader.get_string(kMaxText);
    const auto text = reader.get_string(kMaxText);
    const auto advice = reader.get_string(kMaxText);
    if (!state || *state > static_cast<std::uint8_t>(State::kInfo) || !topic || !text || !advice) {
      return false;
    }
    findings.push_back(
        {.state = static_cast<State>(*state), .topic = *topic, .text = *text, .advice = *advice});
  }
  return count.has_value();
}

bool take(ByteReader& reader, Link& link) {
  const auto from = reader.get<std::int32_t>();
  const auto to = reader.get<std::int32_t>();
  if (!from || !to) {
    return false;
  }
  link.from = *from;
  link.to = *to;
  for (double Link::* const figure : kFigures) {
    const auto bits = reader.get<std::uint64_t>();
    if (!bits) {
      return false;
    }
    link.*figure = std::bit_cast<double>(*bits);
  }
  return true;
}

}  // namespace

std::string encode(const Contribution& contribution) {
  ByteWriter writer;
  put(writer, contribution.examination.of_process);
  put(writer, contribution.examination.of_node);
  for (const Link& link : contribution.links) {
    writer.put(std::int32_t{link.from});
    writer.put(std::int32_t{link.to});
    for (double Link::* const figure : kFigures) {
      writer.put(std::bit_cast<std::uint64_t>(link.*figure));
    }
  }
  const std::vector<std::byte>& bytes = writer.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::optional<Contribution> decode(std::string_view bytes) {
  ByteReader reader(std::as_bytes(std::span(bytes)));
  Contribution contribution;
  if (!take(reader, contribution.examination.of_process) ||
      !take(reader, contribution.examination.of_node)) {
    return std::nullopt;
  }
  while (!reader.rest().empty()) {
    if (!take(reader, contribution.links.emplace_back())) {
      return std::nullopt;
    }
  }
  return contribution;
}

}  // namespace unisono::cli::doctor
