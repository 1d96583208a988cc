// A rank of the tests of stall reports. The argument selects the case:
// - rank 1 does other work while the others wait for rank 1 in an all_reduce or for a message;
// - rank 0 waits for a message that no rank sends while the others wait for rank 0;
// - the two ranks call two groups in opposite order;
// - each rank waits for the next rank in a group of the two.

#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "unisono/comm/process_group.h"

// Exported because tests search for this name in the rank's stack.
[[gnu::noinline, gnu::visibility("default")]] int sit_in_the_program();

int sit_in_the_program() {
  char byte = 0;
  int n = 0;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
    ++n;
  }
  return n;
}

namespace {

void lock_up(unisono::ProcessGroup& group, const unisono::Buffer& buffer) {
  if (group.rank() == 1) {
    group.send(buffer, 0, {.tag = 4});
  }
  if (group.rank() == 0) {
    group.recv(buffer, 1, {.tag = 3});
  } else {
    group.all_reduce(buffer);
  }
}

// Stays after the error, so that the other rank can request its state.
void cross_over(unisono::ProcessGroup& group, const unisono::Buffer& buffer) {
  const std::vector<int> ranks{0, 1};
  const auto first = group.new_group(ranks);
  const auto second = group.new_group(ranks);
  try {
    (group.rank() == 0 ? first : second)->all_reduce(buffer);
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    std::fflush(stdout);
    sit_in_the_program();
    throw;
  }
}

void wait_in_a_ring(unisono::ProcessGroup& group, const unisono::Buffer& buffer) {
  std::vector<std::vector<int>> lists;
  for (int rank = 0; rank < group.world_size(); ++rank) {
    lists.push_back({rank, (rank + 1) % group.world_size()});
  }
  group.new_groups(lists)[static_cast<std::size_t>(group.rank())]->all_reduce(buffer);
}

void let_wait(unisono::ProcessGroup& group, const unisono::Buffer& buffer, const std::string& how) {
  if (group.rank() == 1) {
    std::puts("sitting");
    std::fflush(stdout);
    std::printf("%d bytes\n", sit_in_the_program());
  }
  if (how == "all_reduce") {
    group.all_reduce(buffer);
  } else if (group.rank() == 1) {
    group.send(buffer, 0);
  } else {
    group.recv(buffer, 1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  try {
    const auto group = unisono::init_process_group();
    std::vector<float> values(8, 1.0F);
    const unisono::Buffer buffer = unisono::as_buffer(std::span(values));
    group->barrier();
    group->all_reduce(buffer);
    if (how == "deadlock") {
      lock_up(*group, buffer);
    } else if (how == "crossed") {
      cross_over(*group, buffer);
    } else if (how == "ring") {
      wait_in_a_ring(*group, buffer);
    } else {
      let_wait(*group, buffer, how);
    }
    unisono::destroy_process_group();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stall_program: %s\n", error.what());
    return 1;
  }
}
