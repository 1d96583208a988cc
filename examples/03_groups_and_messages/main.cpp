// Sums in two groups of ranks, messages round a ring, and an all_gather of the results.
//
//     unisono run -n 4 groups_and_messages

#include <cstddef>
#include <cstdio>
#include <exception>
#include <span>
#include <vector>

#include <unisono/unisono.h>

using unisono::as_buffer;

int main() {
  try {
    const auto world = unisono::init_process_group();
    const int rank = world->rank();
    const int size = world->world_size();

    // One group of the even ranks and one group of the odd ranks.
    const auto half = world->split(rank % 2, rank);
    int sum = rank;
    half->all_reduce(as_buffer(std::span(&sum, 1)));

    // Every rank sends to the next rank first, so the send must not block.
    int mine = 10 * rank;
    int neighbours = -1;
    const unisono::Work sent = world->send_async(as_buffer(std::span(&mine, 1)), (rank + 1) % size);
    world->recv(as_buffer(std::span(&neighbours, 1)), (rank + size - 1) % size);
    sent.wait();

    // Every rank receives the results of all ranks, in the order of the ranks.
    std::vector<int> pair{sum, neighbours};
    std::vector<int> all(2 * static_cast<std::size_t>(size));
    world->all_gather(as_buffer(std::span(pair)), as_buffer(std::span(all)));
    for (int from = 0; rank == 0 && from < size; ++from) {
      const std::size_t at = 2 * static_cast<std::size_t>(from);
      std::printf(
          "rank %d: its group's sum %d, its neighbour's number %d\n", from, all[at], all[at + 1]);
    }
    unisono::destroy_process_group();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "groups_and_messages: %s\n", error.what());
    return 1;
  }
}
