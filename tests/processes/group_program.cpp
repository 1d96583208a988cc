// A rank that makes groups of all ranks, with a limit on the number of additional open files.
// Arguments: "many", the number of groups, and the number of files that the rank may open for the
// groups; or "barrier" or "message", the first operation of ranks 0 and 1 in a group in which rank
// 0 may open no file.

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "unisono/comm/process_group.h"

namespace {

// RLIMIT_NOFILE limits descriptor numbers, and the inherited descriptors may have high numbers.
void allow_files(std::size_t n_more) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    throw std::runtime_error("getrlimit");
  }
  int next = 0;
  for (std::size_t n_free = 0; n_free < n_more; ++next) {
    n_free += ::fcntl(next, F_GETFD) == -1 ? 1 : 0;
  }
  limit.rlim_cur = static_cast<rlim_t>(next);
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    throw std::runtime_error("setrlimit");
  }
}

void make_groups(std::size_t n_groups, std::size_t n_files) {
  const auto world = unisono::init_process_group();
  std::vector<int> all(static_cast<std::size_t>(world->world_size()));
  std::iota(all.begin(), all.end(), 0);
  allow_files(n_files);
  const std::vector<std::vector<int>> lists(n_groups, all);
  const auto groups = world->new_groups(lists);
  for (const auto& group : groups) {
    group->barrier();
  }
  std::printf("%zu groups\n", groups.size());
  unisono::destroy_process_group();
}

void meet_without_files(const std::string& operation) {
  const auto world = unisono::init_process_group();
  const std::vector<int> both{0, 1};
  const auto group = world->new_group(both);
  const int rank = world->rank();
  if (rank == 0) {
    allow_files(1);
    (void)::dup(STDIN_FILENO);
  }
  world->barrier();  // The first operation.
  if (operation == "barrier") {
    group->barrier();
  } else {
    // Neither rank sends, but each rank opens the connection.
    float value = 0;
    (void)group->recv(unisono::as_buffer(std::span(&value, 1)), 1 - rank);
  }
  std::printf("met\n");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    if (arguments.at(0) == "many") {
      make_groups(std::stoul(arguments.at(1)), std::stoul(arguments.at(2)));
    } else {
      meet_without_files(arguments.at(0));
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
