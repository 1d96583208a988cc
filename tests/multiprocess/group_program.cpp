// A rank that makes many groups of all ranks, and has few files more to open than it has open then.
// Arguments: how many groups, and how many files.

#include <sys/resource.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <iterator>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "unisono/comm/process_group.h"

namespace {

void allow_files(std::size_t n_more) {
  const std::filesystem::directory_iterator open("/proc/self/fd");
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    throw std::runtime_error("getrlimit");
  }
  limit.rlim_cur = static_cast<rlim_t>(std::distance(begin(open), end(open))) + n_more;
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

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    make_groups(std::stoul(arguments.at(0)), std::stoul(arguments.at(1)));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
