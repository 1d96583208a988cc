// A transformer that learns what reviews of movies think of them: the one that IDRIS's course on
// parallel training has, data parallel. Each rank has the whole model, and its share of each batch.
//
//     unisono run -n 2 imdb_transformer --data FOLDER
//     unisono run -n 2 imdb_transformer --generated --nlayers 4 --d_model 32 --chunks 2
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/GradMode.h>
#include <torch/serialize.h>
#include <torch/utils.h>

#include "unisono/base/error_text.h"
#include "unisono/comm/process_group.h"
#include "unisono/data/collating_loader.h"
#include "unisono/data/pad_to_longest.h"
#include "unisono/data/samplers/evaluation_sampler.h"
#include "unisono/data/samplers/length_bucketed_sampler.h"
#include "unisono/torch/checkpoint.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"
#include "unisono/torch/optim/adamw.h"
#include "unisono/torch/optim/lr_scheduler.h"
#include "unisono/torch/optim/schedule.h"

#include "../command_line.h"
#include "options.h"
#include "printing.h"
#include "reviews.h"
#include "tensors.h"
#include "transformer.h"

namespace {

using Model = unisono::DistributedDataParallel<torch::nn::Sequential>;
using Loader = unisono::CollatingLoader<unisono::PaddedBatch>;

// The mean loss of the batch. Gradients of its chunks add up; the last one's pass averages them
// over the ranks.
double backward(Model& model, const imdb::Batch& batch, int n_chunks) {
  const std::vector<torch::Tensor> tokens = batch.tokens.chunk(n_chunks);
  const std::vector<torch::Tensor> labels = batch.labels.chunk(n_chunks);
  double sum = 0;
  const auto run = [&](std::size_t chunk) {
    const double share = double(labels[chunk].size(0)) / double(batch.labels.size(0));
    const torch::Tensor loss = imdb::loss_of(model(tokens[chunk]), labels[chunk]) * share;
    loss.backward();
    sum += loss.item<double>();
  };
  for (std::size_t chunk = 0; chunk + 1 < tokens.size(); ++chunk) {
    const auto guard = model.no_sync();
    run(chunk);
  }
  run(tokens.size() - 1);
  return sum;
}

// Each rank tests every world_size-th review, none twice.
double accuracy(unisono::ProcessGroup& group,
                Model& model,
                Loader& loader,
                std::int64_t n_reviews) {
  loader.start(unisono::EvaluationSampler(n_reviews, group));
  model.eval();
  const torch::NoGradGuard no_grad;
  double n_correct = 0;
  std::int64_t n_tested = 0;
  while (const std::optional<unisono::PaddedBatch> padded = loader.next()) {
    const imdb::Batch batch = imdb::as_tensors(*padded);
    const torch::Tensor scores = model.module()->forward(batch.tokens);
    n_correct += scores.argmax(1).eq(batch.labels).sum().item<double>();
    n_tested += padded->size();
  }
  return imdb::mean_over_ranks(group, n_correct, n_tested);
}

void train(const imdb::Options& options) {
  const auto group = unisono::init_process_group();
  const bool speaks = group->rank() == 0;
  if (!options.model_path.empty()) {
    unisono::check_can_save_on_rank_0(*group, options.model_path);
  }
  const imdb::Reviews reviews = imdb::load_reviews(options);
  torch::nn::Sequential net = imdb::make_net(options, reviews.ntokens);
  if (options.loads_model) {
    torch::load(net, options.model_path);  // on every rank
  }
  Model model(net, group);
  torch::manual_seed(static_cast<std::uint64_t>(options.seed + 1 + group->rank()));  // dropout

  unisono::LengthBucketedSampler sampler(
      reviews.train->lengths(), *group, {.batch_size = options.batch_size, .seed = options.seed});
  Loader train_loader(reviews.train, unisono::PadToLongest(), {.num_workers = 1});
  Loader test_loader(reviews.test, unisono::PadToLongest(), {.batch_size = 100, .num_workers = 1});
  unisono::optim::AdamW optimizer(model.parameters(), unisono::optim::AdamWOptions(options.lr));
  unisono::optim::LrScheduler scheduler(
      optimizer, unisono::optim::one_cycle_lr(options.lr, options.epochs * sampler.num_batches()));
  if (speaks) {
    imdb::print_start(options, reviews, std::to_string(group->world_size()) + " ranks");
  }
  const auto start = std::chrono::steady_clock::now();
  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    sampler.set_epoch(epoch);
    train_loader.start(sampler);
    model.train();
    double loss_sum = 0;
    while (const std::optional<unisono::PaddedBatch> batch = train_loader.next()) {
      optimizer.zero_grad();
      loss_sum += backward(model, imdb::as_tensors(*batch), options.chunks);
      optimizer.step();
      scheduler.step();
    }
    const double loss = imdb::mean_over_ranks(*group, loss_sum, sampler.num_batches());
    const double share = accuracy(*group, model, test_loader, reviews.test->size());
    if (speaks) {
      imdb::print_epoch(options, {.number = epoch, .loss = loss, .accuracy = share}, start);
    }
  }
  model.check_consistent();
  if (!options.model_path.empty()) {
    unisono::save_on_rank_0(*group, *net, options.model_path);
  }
  unisono::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  imdb::Options options;
  CLI::App app("Trains a transformer on reviews of movies: unisono run -n 2 imdb_transformer");
  imdb::add_options(app, options);
  examples::parse_or_exit(app, argc, argv);
  try {
    imdb::check(options);
    train(options);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "imdb_transformer: %s\n", unisono::error_text(error).c_str());
    return 1;
  }
}
