// Two all-reduces made of messages: each rank sends only to its right neighbour, first whole
// buffers, then chunks.
//
//     ring_all_reduce --size 4
//     unisono run -n 4 ring_all_reduce

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <unisono/unisono.h>

#include "../command_line.h"

namespace {

// A rank between two neighbours, with counts of the sent data.
struct Ring {
  // Sends and receives at the same time. If every rank first sent a large message with send(), all
  // ranks would wait forever for a receive.
  void pass_on(std::span<float> outgoing, std::span<float> incoming) {
    const int right = (group.rank() + 1) % group.world_size();
    const int left = (group.rank() + group.world_size() - 1) % group.world_size();
    const unisono::Work request = group.send_async(unisono::as_buffer(outgoing), right);
    group.recv(unisono::as_buffer(incoming), left);
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

// In each of size - 1 steps a rank sends the buffer that the rank received in the step before.
void all_reduce(Ring& ring, std::vector<float>& values) {
  std::vector<float> outgoing = values;
  std::vector<float> incoming(values.size());
  for (int step = 1; step < ring.group.world_size(); ++step) {
    ring.pass_on(outgoing, incoming);
    add(incoming, values);
    std::swap(outgoing, incoming);
  }
}

// Each of `size` chunks goes round twice: first the ranks add to the chunk, then the ranks copy the
// sum. A rank sends 2 (size - 1) / size of the buffer.
void chunked_all_reduce(Ring& ring, std::vector<float>& values) {
  const int rank = ring.group.rank();
  const int size = ring.group.world_size();
  // If the elements can't be divided evenly, the first chunks have one more element.
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

void print(const char* variant, const Ring& ring, const std::vector<float>& sums) {
  std::printf("Rank %d of %d: %s:", ring.group.rank(), ring.group.world_size(), variant);
  for (const float sum : std::set(sums.begin(), sums.end())) {
    std::printf(" %g", static_cast<double>(sum));
  }
  std::printf(" in %d steps, %zu bytes to", ring.n_steps, ring.n_bytes);
  for (const int neighbour : ring.neighbours) {
    std::printf(" rank %d", neighbour);
  }
  std::printf("\n");
}

// Rank r contributes elements of value r + 1.
void run(const std::size_t& count) {
  const auto group = unisono::init_process_group();
  for (const bool in_chunks : {false, true}) {
    std::vector<float> values(count, static_cast<float>(group->rank() + 1));
    Ring ring{.group = *group};
    (in_chunks ? chunked_all_reduce : all_reduce)(ring, values);
    print(in_chunks ? "chunks" : "whole buffers", ring, values);
  }
  unisono::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  int size = 0;
  std::size_t count = 10;
  CLI::App app("Adds up numbers over all ranks by messages around a ring");
  examples::add_n_ranks(app, "--size", size);
  app.add_option("--count", count, "Numbers of each rank")->capture_default_str();
  examples::parse_or_exit(app, argc, argv);
  return examples::exit_code_of("ring_all_reduce",
                                [&] { examples::run_or_spawn(size, run, count); });
}
