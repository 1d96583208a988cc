// Data parallel training of a convnet on MNIST or Fashion-MNIST:
//
//     unisono run -n 2 mnist --epochs 3

#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/error_text.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/checkpoint.h"

#include "datasets.h"
#include "options.h"
#include "trainer.h"

namespace {

// What fails on one rank nearly always fails on all: the first of them says it, the rest are quiet.
bool fails_anywhere(unisono::ProcessGroup& group, const std::function<void()>& action) {
  std::string problem;
  try {
    action();
  } catch (const std::exception& error) {
    problem = unisono::error_text(error);
  }
  std::vector<int> first{problem.empty() ? group.world_size() : group.rank()};
  group.all_reduce(unisono::as_buffer(std::span(first)), {.op = unisono::kMin});
  if (first[0] == group.rank()) {
    std::fprintf(stderr, "mnist: %s\n", problem.c_str());
  }
  return first[0] < group.world_size();
}

int train(const mnist::Options& options) {
  const std::shared_ptr<unisono::ProcessGroup> group = unisono::init_process_group();
  mnist::Datasets datasets;
  const auto prepare = [&] {
    if (!options.model_path.empty()) {
      // Before minutes of training, not after them.
      unisono::check_can_save_on_rank_0(*group, options.model_path);
    }
    datasets = mnist::load_datasets(options);
  };
  if (fails_anywhere(*group, prepare)) {
    return 1;
  }
  mnist::Trainer trainer(group, options, datasets);
  if (fails_anywhere(*group, [&] { trainer.resume(); }) ||
      fails_anywhere(*group, [&] { trainer.open_progress(); })) {
    return 1;
  }
  trainer.run();
  return fails_anywhere(*group, [&] { trainer.save(); }) ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const mnist::Options options = mnist::parse_options(argc, argv);
  int exit_code = 1;
  try {
    exit_code = train(options);
    unisono::destroy_process_group();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mnist: %s\n", unisono::error_text(error).c_str());
  }
  return exit_code;
}
