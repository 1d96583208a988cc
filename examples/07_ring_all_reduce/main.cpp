// A sum over all ranks, made of messages to the right neighbour alone: whole buffers go round, then
// chunks of them.
//
//     ring_all_reduce --size 4
//     unisono run -n 4 ring_all_reduce

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "unisono/comm/process_group.h"
#include "unisono/launch/spawn_ranks.h"

#include "../command_line.h"

namespace {

using unisono::as_buffer;

// A rank among its two neighbours, and what it has sent.
struct Ring {
  // Sends and receives at once: if all ranks sent first, large messages would wait for each other.
  void pass_on(std::span<float> outgoing, std::span<float> incoming) {
    const int rank = group.rank();
    const int size = group.world_size();
    const int right = (rank + 1) % size;
    const unisono::Work request = group.send_async(as_buffer(outgoing), right);
    group.recv(as_buffer(incoming), (rank + size - 1) % size);
    request.wait();
    ++n_steps;
    n_bytes += outgoing.size_bytes();
    neighbours.insert(right);
  }

  unisono::ProcessGroup& group;
  int n_steps = 0;
  std::size_t n_bytes = 0;
  std::set<int> neighbours = {};
};

void add(std::span<const float> values, std::span<float> to) {
  std::transform(values.begin(), values.end(), to.begin(), to.begin(), std::plus());
}

// Whole buffers: size - 1 steps, in each of which a rank passes on what it got in the one before.
void all_reduce(Ring& ring, const std::vector<float>& send, std::vector<float>& recv) {
  std::vector<float> outgoing = send;
  std::vector<float> incoming(send.size());
  recv = send;
  for (int step = 1; step < ring.group.world_size(); ++step) {
    ring.pass_on(outgoing, incoming);
    add(incoming, recv);
    std::swap(outgoing, incoming);
  }
}

// A chunk for each rank goes round twice: first its sum grows, then all copy it. So a rank sends
// 2 (size - 1) / size of the buffer, however many there are.
void chunked_all_reduce(Ring& ring, std::vector<float>& values) {
  const int rank = ring.group.rank();
  const int size = ring.group.world_size();
  // The first chunks have an element more where it does not go up evenly.
  const auto chunk = [&](int number) {
    const auto parts = static_cast<std::size_t>(size);
    const auto part = static_cast<std::size_t>((number + 2 * size) % size);
    const std::size_t length = values.size() / parts;
    const std::size_t n_longer = values.size() % parts;
    return std::span(values).subspan(part * length + std::min(part, n_longer),
                                     length + (part < n_longer ? 1 : 0));
  };
  for (int step = 0; step < 2 * (size - 1); ++step) {
    const std::span<float> mine = chunk(rank - step - 1);
    std::vector<float> incoming(mine.size());
    ring.pass_on(chunk(rank - step), incoming);
    if (step < size - 1) {
      add(incoming, mine);
    } else {
      std::ranges::copy(incoming, mine.begin());
    }
  }
}

void say(const char* what, const Ring& ring, const std::vector<float>& sums) {
  std::printf("Rank %d of %d: %s:", ring.group.rank(), ring.group.world_size(), what);
  for (const float sum : std::set(sums.begin(), sums.end())) {
    std::printf(" %g", static_cast<double>(sum));
  }
  std::printf(" in %d steps, %zu bytes to", ring.n_steps, ring.n_bytes);
  for (const int neighbour : ring.neighbours) {
    std::printf(" rank %d", neighbour);
  }
  std::printf("\n");
}

// Rank r brings r + 1.
void run(std::size_t count) {
  const auto group = unisono::init_process_group();
  std::vector<float> values(count, static_cast<float>(group->rank() + 1));
  std::vector<float> sums;
  Ring whole{.group = *group};
  all_reduce(whole, values, sums);
  say("whole buffers", whole, sums);
  Ring in_chunks{.group = *group};
  chunked_all_reduce(in_chunks, values);
  say("chunks", in_chunks, values);
  unisono::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  int size = 0;
  std::size_t count = 10;
  CLI::App app("Adds up numbers over all ranks by messages around a ring");
  app.add_option("--size", size, "Start so many ranks; without it a launcher has")
      ->check(CLI::PositiveNumber);
  app.add_option("--count", count, "Numbers of each rank")->capture_default_str();
  examples::parse_or_exit(app, argc, argv);
  try {
    if (size == 0) {
      run(count);
    } else {
      unisono::spawn(
          [](int /*rank*/, std::size_t n) { run(n); }, std::tuple(count), {.nprocs = size});
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ring_all_reduce: %s\n", error.what());
    return 1;
  }
}
