// Measures training steps in one process, or on the ranks on which the program is started:
//
//     unisono run -n 2 ddp_bench --model mlp
//     unisono run -n 4 ddp_bench --model cnn --logical-ranks 8 --hash
//     ddp_bench --model cnn --alone --data-parallel 2

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>

#include <ATen/Parallel.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"

#include "measure.h"
#include "options.h"
#include "results.h"

namespace {

void measure_on(const std::shared_ptr<unisono::ProcessGroup>& group,
                const bench::Options& options) {
  bench::Result result{.n_ranks = group->world_size(),
                       .samples_per_step = 0,
                       .measured = bench::measure_ranks(group, options)};
  const int n_shards = options.logical_ranks > 0 ? options.logical_ranks : result.n_ranks;
  result.samples_per_step = n_shards * options.batch;
  if (group->rank() == 0) {
    bench::write_result(options, result);
  }
}

void hash_on(const std::shared_ptr<unisono::ProcessGroup>& group, const bench::Options& options) {
  const std::string hash = bench::train_and_hash(group, options);
  if (group->rank() == 0) {
    std::printf("sha256 %s\n", hash.c_str());
  }
}

void run_alone(const bench::Options& options) {
  if (options.hash) {
    std::printf("sha256 %s\n", bench::train_alone_and_hash(options).c_str());
  } else {
    bench::write_result(
        options,
        {.n_ranks = 1,
         .samples_per_step = options.batch * std::max(options.accumulate, options.replicas),
         .measured = bench::measure_alone(options)});
    std::fflush(stdout);
    while (options.is_held && std::getchar() != EOF) {
    }
  }
}

void run(const bench::Options& options) {
  if (options.is_alone) {
    run_alone(options);
    return;
  }
  const std::shared_ptr<unisono::ProcessGroup> group = unisono::init_process_group();
  if (options.hash) {
    hash_on(group, options);
  } else {
    measure_on(group, options);
  }
  unisono::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  const bench::ParsedOptions parsed = bench::parse_options(argc, argv);
  if (parsed.is_done) {
    return parsed.exit_code;
  }
  try {
    at::set_num_threads(1);
    run(parsed.options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ddp_bench: %s\n", unisono::error_text(error).c_str());
    return 1;
  }
  return 0;
}
