// A miniature training: counting_program FILE STEPS adds a number per step on all ranks. It resumes
// from FILE, which rank 0 writes after each step.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>

#include "unisono/base/buffer.h"
#include "unisono/comm/process_group.h"

namespace {

using unisono::as_buffer;

struct State {
  long step = 0;
  long sum = 0;
};

State read_state(const std::string& path) {
  State state;
  std::ifstream(path) >> state.step >> state.sum;
  return state;
}

void write_state(const std::string& path, const State& state) {
  const std::string draft = path + ".new";
  std::ofstream(draft) << state.step << " " << state.sum << "\n";
  if (std::rename(draft.c_str(), path.c_str()) != 0) {
    throw std::runtime_error("can't rename " + draft);
  }
}

void count(const std::string& path, long n_steps) {
  constexpr std::chrono::milliseconds kStep{3};  // Kills shall interrupt the run.
  auto group = unisono::init_process_group();
  State state = group->rank() == 0 ? read_state(path) : State{};
  group->broadcast(as_buffer(std::span(&state.step, 1)), {.root = 0});
  group->broadcast(as_buffer(std::span(&state.sum, 1)), {.root = 0});
  while (state.step < n_steps) {
    // The sum does not depend on the number of ranks, which may change.
    long part = group->rank() == 0 ? state.step + 1 : 0;
    group->all_reduce(as_buffer(std::span(&part, 1)));
    state = {state.step + 1, state.sum + part};
    if (group->rank() == 0) {
      write_state(path, state);
    }
    std::this_thread::sleep_for(kStep);
  }
  group->barrier();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    return 2;
  }
  try {
    count(argv[1], std::atol(argv[2]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
