#include "unisono/base/wait_record.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <utility>

#include "unisono/base/bytes.h"

namespace unisono {
namespace {

using Time = Deadline::Clock::time_point;

constexpr std::size_t kMostWaits = 16;
constexpr std::size_t kMostLate = 512;
constexpr std::size_t kMostText = 256;
constexpr std::size_t kHeaderBytes = sizeof(std::uint64_t) + sizeof(std::uint32_t);
constexpr std::size_t kMostWaitBytes =
    3 * sizeof(std::int64_t) + kMostText + sizeof(std::uint32_t) + kMostLate * sizeof(std::int32_t);
static_assert(kHeaderBytes + 2 * sizeof(std::int32_t) + kMostWaits * kMostWaitBytes <=
              kWaitFileBytes);

std::uint64_t checksum(std::span<const std::byte> bytes) {
  return fnv1a({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

void put_time(ByteWriter& out, Time time) {
  const auto count = std::chrono::nanoseconds(time.time_since_epoch()).count();
  out.put(static_cast<std::int64_t>(count));
}

std::optional<Time> get_time(ByteReader& in) {
  const std::optional<std::int64_t> count = in.get<std::int64_t>();
  return count && *count >= 0 ? std::optional(Time(std::chrono::nanoseconds(*count)))
                              : std::nullopt;
}

std::optional<LongWait> get_wait(ByteReader& in) {
  const std::optional<Time> since = get_time(in);
  const std::optional<Time> seen = get_time(in);
  std::optional<std::string> operation = in.get_string(kMostText);
  const std::optional<std::uint32_t> n_late = in.get<std::uint32_t>();
  if (!since || !seen || !operation || !n_late || *n_late > kMostLate) {
    return std::nullopt;
  }
  LongWait wait{.since = *since, .seen = *seen, .operation = std::move(*operation), .late = {}};
  for (std::uint32_t i = 0; i < *n_late; ++i) {
    const std::optional<std::int32_t> rank = in.get<std::int32_t>();
    if (!rank || *rank < 0) {
      return std::nullopt;
    }
    wait.late.push_back(*rank);
  }
  return wait;
}

}  // namespace

std::vector<std::byte> encode(const WaitRecord& record) {
  ByteWriter out;
  out.put(static_cast<std::int32_t>(record.pid));
  const auto waits = std::span(record.waits).first(std::min(record.waits.size(), kMostWaits));
  out.put(static_cast<std::uint32_t>(waits.size()));
  for (const LongWait& wait : waits) {
    put_time(out, wait.since);
    put_time(out, wait.seen);
    out.put_string(std::string_view(wait.operation).substr(0, kMostText));
    const auto late = std::span(wait.late).first(std::min(wait.late.size(), kMostLate));
    out.put(static_cast<std::uint32_t>(late.size()));
    for (const int rank : late) {
      out.put(static_cast<std::int32_t>(rank));
    }
  }
  return std::move(out).bytes();
}

std::optional<WaitRecord> decode_wait_record(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  const std::optional<std::int32_t> pid = in.get<std::int32_t>();
  const std::optional<std::uint32_t> n_waits = in.get<std::uint32_t>();
  if (!pid || !n_waits || *n_waits > kMostWaits) {
    return std::nullopt;
  }
  WaitRecord record{.pid = *pid};
  for (std::uint32_t i = 0; i < *n_waits; ++i) {
    std::optional<LongWait> wait = get_wait(in);
    if (!wait) {
      return std::nullopt;
    }
    record.waits.push_back(std::move(*wait));
  }
  return in.rest().empty() ? std::optional(std::move(record)) : std::nullopt;
}

std::vector<std::byte> checked(std::span<const std::byte> bytes) {
  ByteWriter out;
  out.put(checksum(bytes));
  out.put(static_cast<std::uint32_t>(bytes.size()));
  out.put_raw(bytes);
  return std::move(out).bytes();
}

std::optional<std::span<const std::byte>> find_checked(std::span<const std::byte> file) {
  ByteReader in(file);
  const std::optional<std::uint64_t> sum = in.get<std::uint64_t>();
  const std::optional<std::uint32_t> size = in.get<std::uint32_t>();
  if (!sum || !size || *size > in.rest().size()) {
    return std::nullopt;
  }
  const std::span<const std::byte> bytes = in.rest().first(*size);
  return checksum(bytes) == *sum ? std::optional(bytes) : std::nullopt;
}

}  // namespace unisono
