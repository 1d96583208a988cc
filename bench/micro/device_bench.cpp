// Measures an all_reduce of a tensor on a simulated device, without delays, beside its parts: the
// same operation on host memory, and copies of the tensor to the host and back:
//
//     unisono run -n 2 device_bench
//
// Rank 0 prints a line of JSON for each size: bytes, the medians host_us, copies_us and device_us
// of the slowest rank, ratio (device_us divided by the sum of the two others), and the medians
// call_us and host_call_us of the time until an asynchronous call returns.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include "unisono/base/buffer.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"
#include "unisono/torch/tensor/tensor.h"

#include "sim_device/sim_device.h"

namespace {

constexpr std::array<std::int64_t, 4> kSizes{8, 16 << 10, 1 << 20, 64 << 20};
constexpr std::int64_t kBytesPerSize = std::int64_t{2} << 30;

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

template <class Action>
double microseconds_of(const Action& action) {
  const auto start = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

struct Times {
  std::vector<double> host;
  std::vector<double> copies;
  std::vector<double> device;
  std::vector<double> host_call;
  std::vector<double> device_call;
};

Times measure(unisono::ProcessGroup& group, std::int64_t n_bytes) {
  const at::Tensor host = at::ones({n_bytes / 4});
  const at::Tensor device = host.to(at::Device(at::kPrivateUse1, 0));
  const at::Tensor pinned = at::empty(host.sizes(), host.options().pinned_memory(true));
  const unisono::AllReduceOptions options{.op = unisono::kAvg};
  Times times;
  const auto repeats = std::clamp<std::int64_t>(kBytesPerSize / n_bytes, 11, 301);
  for (std::int64_t i = 0; i < repeats; ++i) {
    group.barrier();
    times.host.push_back(microseconds_of([&] { unisono::all_reduce(group, host, options); }));
    times.copies.push_back(microseconds_of([&] {
      pinned.copy_(device, /*non_blocking=*/true);
      sim::synchronize_all();
      device.copy_(pinned, /*non_blocking=*/true);
      sim::synchronize_all();
    }));
    group.barrier();
    times.device.push_back(microseconds_of([&] {
      unisono::all_reduce(group, device, options);
      sim::synchronize_all();
    }));
    unisono::Work work;
    group.barrier();
    times.host_call.push_back(
        microseconds_of([&] { work = unisono::all_reduce_async(group, host, options); }));
    work.wait();
    group.barrier();
    times.device_call.push_back(
        microseconds_of([&] { work = unisono::all_reduce_async(group, device, options); }));
    work.wait();
    sim::synchronize_all();
  }
  return times;
}

void report(unisono::ProcessGroup& group, std::int64_t n_bytes) {
  const Times times = measure(group, n_bytes);
  std::array<double, 5> medians{median(times.host),
                                median(times.copies),
                                median(times.device),
                                median(times.device_call),
                                median(times.host_call)};
  group.all_reduce(unisono::as_buffer(std::span<double>(medians)), {.op = unisono::kMax});
  if (group.rank() == 0) {
    std::printf(
        R"({"bytes": %lld, "host_us": %.1f, "copies_us": %.1f, "device_us": %.1f, "ratio": %.2f, )"
        R"("call_us": %.1f, "host_call_us": %.1f})"
        "\n",
        static_cast<long long>(n_bytes),
        medians[0],
        medians[1],
        medians[2],
        medians[2] / (medians[0] + medians[1]),
        medians[3],
        medians[4]);
  }
}

}  // namespace

int main() {
  try {
    sim::install();
    sim::set_delays(false);
    at::set_num_threads(1);
    const auto group = unisono::init_process_group();
    for (const std::int64_t n_bytes : kSizes) {
      report(*group, n_bytes);
    }
    group->destroy();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "device_bench: %s\n", error.what());
    return 1;
  }
}
