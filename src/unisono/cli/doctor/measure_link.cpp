#include "unisono/cli/doctor/measure_link.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/comm/process_group.h"

namespace unisono::cli::doctor {
namespace {

using SteadyClock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr Seconds kTimeForEach{0.12};

double seconds_since(SteadyClock::time_point start) {
  return Seconds(SteadyClock::now() - start).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <class T>
void send_value(ProcessGroup& group, int peer, T value) {
  group.send(as_buffer(std::span(&value, 1)), peer);
}

template <class T>
T receive_value(ProcessGroup& group, int peer) {
  T value{};
  (void)group.recv(as_buffer(std::span(&value, 1)), peer);
  return value;
}

// Each ping says whether it is to be answered; an answer is the time that it was sent at.
void ping(ProcessGroup& group, int peer, const ClockReading& clock, Link& link) {
  constexpr int kWarmUp = 10;
  constexpr std::size_t kMost = 1000;
  std::vector<double> trips;
  double fastest = 0;
  auto start = SteadyClock::now();
  for (int i = 0; trips.size() < kMost; ++i) {
    if (i == kWarmUp) {
      trips.clear();
      start = SteadyClock::now();
    }
    if (i > 2 * kWarmUp && seconds_since(start) > kTimeForEach.count()) {
      break;
    }
    const std::chrono::nanoseconds left_at = clock();
    const auto begin = SteadyClock::now();
    send_value<std::int64_t>(group, peer, 1);
    const auto theirs = receive_value<std::int64_t>(group, peer);
    const double trip = seconds_since(begin);
    if (trips.empty() || trip < fastest) {
      fastest = trip;
      link.clock_difference =
          Seconds(std::chrono::nanoseconds(theirs) - left_at).count() - trip / 2;
      link.clock_uncertainty = trip / 2;
    }
    trips.push_back(trip);
  }
  send_value<std::int64_t>(group, peer, 0);
  link.latency = median(trips) / 2;
}

void answer_pings(ProcessGroup& group, int peer, const ClockReading& clock) {
  while (receive_value<std::int64_t>(group, peer) != 0) {
    send_value<std::int64_t>(group, peer, clock().count());
  }
}

// Each message is announced by its size, 0 for no more, and acknowledged.
double send_stream(ProcessGroup& group, int peer, double latency) {
  constexpr std::size_t kLeastBytes = std::size_t{1} << 20;
  constexpr std::size_t kMostBytes = std::size_t{16} << 20;
  constexpr double kLongEnough = 0.02;
  constexpr std::size_t kLeastSamples = 3;
  std::vector<std::uint8_t> bytes(kMostBytes);
  std::size_t size = kLeastBytes;
  std::vector<double> samples;
  auto start = SteadyClock::now();
  while (samples.size() < kLeastSamples || seconds_since(start) < kTimeForEach.count()) {
    const auto begin = SteadyClock::now();
    send_value<std::int64_t>(group, peer, static_cast<std::int64_t>(size));
    group.send(as_buffer(std::span(bytes).first(size)), peer);
    (void)receive_value<std::int64_t>(group, peer);
    const double time = seconds_since(begin);
    // The acknowledgement's way back is no part of it.
    samples.push_back(static_cast<double>(size) / std::max(time / 2, time - latency));
    if (time < kLongEnough && size < kMostBytes) {
      size *= 2;
      samples.clear();
      start = SteadyClock::now();
    }
  }
  send_value<std::int64_t>(group, peer, 0);
  return median(samples);
}

void receive_stream(ProcessGroup& group, int peer) {
  std::vector<std::uint8_t> bytes;
  while (const auto size = receive_value<std::int64_t>(group, peer)) {
    bytes.resize(std::max(bytes.size(), static_cast<std::size_t>(size)));
    (void)group.recv(as_buffer(std::span(bytes).first(static_cast<std::size_t>(size))), peer);
    send_value<std::int64_t>(group, peer, size);
  }
}

}  // namespace

std::chrono::nanoseconds read_wall_clock() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::system_clock::now().time_since_epoch());
}

Link measure_link(ProcessGroup& group, int peer, const ClockReading& clock) {
  Link link{.from = group.rank(), .to = peer};
  if (group.rank() < peer) {
    ping(group, peer, clock, link);
    send_value(group, peer, link.latency);
    link.bandwidth = send_stream(group, peer, link.latency);
    receive_stream(group, peer);
    link.bandwidth_back = receive_value<double>(group, peer);
  } else {
    answer_pings(group, peer, clock);
    link.latency = receive_value<double>(group, peer);
    receive_stream(group, peer);
    send_value(group, peer, send_stream(group, peer, link.latency));
  }
  return link;
}

}  // namespace unisono::cli::doctor
