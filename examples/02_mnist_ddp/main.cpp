// Data parallel training of a convnet on MNIST or Fashion-MNIST:
//
//     unisono run -n 2 mnist --epochs 3

#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"

#include "datasets.h"
#include "options.h"
#include "trainer.h"

namespace {

// Before minutes of training, not after them.
void check_save_folder(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder)) {
    throw unisono::Error(unisono::ErrorCode::kNotFound,
                         "--save " + path + ": there is no folder " + folder.string());
  }
}

// What fails on one rank nearly always fails on all: the first of them says it, the rest are quiet.
bool has_failed_anywhere(unisono::ProcessGroup& group, const std::string& problem) {
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
  std::string problem;
  try {
    check_save_folder(options.save);
    datasets = mnist::load_datasets(options);
  } catch (const std::exception& error) {
    problem = error.what();
  }
  if (has_failed_anywhere(*group, problem)) {
    return 1;
  }
  mnist::Trainer(group, options, datasets).run();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const mnist::ParsedOptions parsed = mnist::parse_options(argc, argv);
  if (parsed.is_done) {
    return parsed.exit_code;
  }
  int exit_code = 1;
  try {
    exit_code = train(parsed.options);
    unisono::destroy_process_group();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mnist: %s\n", error.what());
  }
  return exit_code;
}
