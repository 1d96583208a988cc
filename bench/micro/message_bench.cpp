// Messages between ranks 0 and 1: half a round trip of ping-pong, by size, kind of memory and form
// of the call.
//
//     unisono run -n 2 build/release/bin/message_bench [BYTES...]
//
// To measure tcp, set UNISONO_NODE_ID to a different word for each rank.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"

namespace {

using unisono::Buffer;
using unisono::ProcessGroup;
using Clock = std::chrono::steady_clock;

constexpr int kRepetitions = 21;

void exchange(ProcessGroup& group, const Buffer& buffer, bool is_async, int n_rounds) {
  const int peer = 1 - group.rank();
  for (int round = 0; round < n_rounds; ++round) {
    for (const bool is_mine : {group.rank() == 0, group.rank() == 1}) {
      if (is_async) {
        (is_mine ? group.send_async(buffer, peer) : group.recv_async(buffer, peer)).wait();
      } else if (is_mine) {
        group.send(buffer, peer);
      } else {
        group.recv(buffer, peer);
      }
    }
  }
}

// Returns the seconds of half a round trip: the median of several repetitions.
double measure(ProcessGroup& group, const Buffer& buffer, bool is_async) {
  const std::int64_t n_bytes = std::max<std::int64_t>(buffer.n_bytes(), 1);
  const std::int64_t limit = is_async ? 300 : 20'000;
  const int n_rounds = static_cast<int>(std::clamp<std::int64_t>((64 << 20) / n_bytes, 3, limit));
  exchange(group, buffer, is_async, n_rounds);
  std::array<double, kRepetitions> seconds{};
  for (double& value : seconds) {
    group.barrier();
    const auto start = Clock::now();
    exchange(group, buffer, is_async, n_rounds);
    value = std::chrono::duration<double>(Clock::now() - start).count() / (2 * n_rounds);
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[kRepetitions / 2];
}

void report(ProcessGroup& group, const std::string& memory, bool is_async, std::int64_t n_bytes) {
  std::vector<std::byte> own(static_cast<std::size_t>(n_bytes));
  Buffer buffer{.data = own.data(), .count = n_bytes, .dtype = unisono::DType::kUInt8};
  if (memory == "symmetric") {
    buffer = group.allocate(n_bytes, unisono::DType::kUInt8);
  }
  std::fill_n(static_cast<std::byte*>(buffer.data), n_bytes, std::byte{1});
  const double seconds = measure(group, buffer, is_async);
  if (group.rank() == 0) {
    std::printf("%-9s %-8s %9lld B  %10.3f us  %7.2f GB/s\n",
                memory.c_str(),
                is_async ? "async" : "blocking",
                static_cast<long long>(n_bytes),
                1e6 * seconds,
                1e-9 * static_cast<double>(n_bytes) / seconds);
    std::fflush(stdout);
  }
}

void run(const std::vector<std::int64_t>& sizes) {
  const auto group = unisono::init_process_group();
  if (group->world_size() != 2) {
    throw std::runtime_error("it takes two ranks");
  }
  for (const std::string memory : {"private", "symmetric"}) {
    for (const bool is_async : {false, true}) {
      for (const std::int64_t n_bytes : sizes) {
        report(*group, memory, is_async, n_bytes);
      }
    }
  }
  unisono::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<std::int64_t> sizes;
    for (int i = 1; i < argc; ++i) {
      sizes.push_back(std::stoll(argv[i]));
    }
    if (sizes.empty()) {
      sizes = {0,
               8,
               64,
               1 << 10,
               8 << 10,
               16 << 10,
               32 << 10,
               64 << 10,
               256 << 10,
               1 << 20,
               4 << 20,
               16 << 20,
               64 << 20};
    }
    run(sizes);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "message_bench: %s\n", error.what());
    return 1;
  }
}
