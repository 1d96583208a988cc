// A rank that repeatedly uses every feature that could leave resources behind: groups, symmetric
// memory, synchronous and asynchronous operations and messages, in one job after the other.

#include <array>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <span>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"

namespace {

using unisono::ProcessGroup;

void work_in(ProcessGroup& group) {
  const unisono::Buffer shared = group.allocate(1 << 16, unisono::DType::kFloat32);
  const unisono::Work reduced = group.all_reduce_async(shared);
  std::vector<float> values(1000, 1.0F);
  group.all_reduce(unisono::as_buffer(std::span(values)));
  std::vector<std::byte> sent(1 << 16);
  std::vector<std::byte> received(sent.size());
  const int n_ranks = group.world_size();
  const unisono::Work work =
      group.send_async({.data = sent.data(), .count = 1 << 16, .dtype = unisono::DType::kUInt8},
                       (group.rank() + 1) % n_ranks);
  group.recv({.data = received.data(), .count = 1 << 16, .dtype = unisono::DType::kUInt8},
             (group.rank() + n_ranks - 1) % n_ranks);
  work.wait();
  reduced.wait();
}

void live_once() {
  const auto world = unisono::init_process_group();
  const std::array<int, 2> members{0, 1};
  for (int round = 0; round < 5; ++round) {
    work_in(*world);
    const auto group = world->new_group(members);
    work_in(*group);
  }
  unisono::destroy_process_group();
}

}  // namespace

int main() {
  try {
    // Far more rounds than any test allows, but a finite number.
    for (int life = 0; life < 1000; ++life) {
      live_once();
      if (life == 0) {
        std::puts("lived once");
        std::fflush(stdout);
      }
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "churn_program: %s\n", error.what());
    return 1;
  }
}
