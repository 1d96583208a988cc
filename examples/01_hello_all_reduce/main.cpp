// The smallest program: the ranks add up the number 1 and their rank numbers.
//
//     unisono run -n 4 hello_all_reduce

#include <cstdio>
#include <exception>
#include <span>
#include <vector>

#include <unisono/unisono.h>

int main() {
  try {
    const auto group = unisono::init_process_group();
    std::vector<float> values{1.0F, static_cast<float>(group->rank())};
    group->all_reduce(unisono::as_buffer(std::span(values)));
    std::printf("rank %d of %d: %g ranks, numbers add up to %g\n",
                group->rank(),
                group->world_size(),
                values[0],
                values[1]);
    unisono::destroy_process_group();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hello_all_reduce: %s\n", error.what());
    return 1;
  }
}
