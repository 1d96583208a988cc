// Data parallel training of a transformer that classifies film reviews, the model of IDRIS's course
// on parallel training. Each rank has the complete model and a share of each batch.
//
//     unisono run -n 2 imdb_transformer --data FOLDER
//     unisono run -n 2 imdb_transformer --generated --nlayers 4 --d_model 32 --chunks 2
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <torch/serialize.h>
#include <torch/utils.h>
#include <unisono/datasets.h>
#include <unisono/torch.h>

#include "../command_line.h"
#include "../training.h"
#include "options.h"
#include "reviews.h"
#include "transformer.h"

namespace {

using Model = unisono::DistributedDataParallel<torch::nn::Sequential>;

// Returns the mean loss of the batch. The gradients of the chunks are added up; the backward pass
// of the last chunk averages the sums over the ranks.
double backward(Model& model, const unisono::BatchTensors& batch, int n_chunks) {
  const std::vector<torch::Tensor> tokens = batch.samples.chunk(n_chunks);
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

void train(const imdb::Options& options) {
  const auto group = unisono::init_process_group();
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
  imdb::Loader train_loader(reviews.train, unisono::datasets::PadToLongest(), {.num_workers = 1});
  imdb::Loader test_loader(
      reviews.test, unisono::datasets::PadToLongest(), {.batch_size = 100, .num_workers = 1});
  unisono::optim::AdamW optimizer(model.parameters(), unisono::optim::AdamWOptions(options.lr));
  unisono::optim::LrScheduler scheduler(
      optimizer, unisono::optim::one_cycle_lr(options.lr, options.epochs * sampler.num_batches()));
  if (group->rank() == 0) {
    imdb::print_start(options, reviews, std::to_string(group->world_size()) + " ranks");
  }
  const auto start = std::chrono::steady_clock::now();
  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    sampler.set_epoch(epoch);
    train_loader.start(sampler);
    model.train();
    double loss_sum = 0;
    while (const std::optional<unisono::datasets::PaddedBatch> batch = train_loader.next()) {
      optimizer.zero_grad();
      loss_sum += backward(model, examples::as_tensors(*batch), options.chunks);
      optimizer.step();
      scheduler.step();
    }
    const double loss =
        examples::mean_over_ranks(*group, loss_sum, static_cast<double>(sampler.num_batches()));
    model.eval();
    test_loader.start(unisono::EvaluationSampler(reviews.test->size(), *group));
    const double accuracy = examples::test_accuracy(
        *group, test_loader, [&](const torch::Tensor& tokens) { return net->forward(tokens); });
    if (group->rank() == 0) {
      imdb::print_epoch(options, {.number = epoch, .loss = loss, .accuracy = accuracy}, start);
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
  return examples::exit_code_of("imdb_transformer", [&] {
    imdb::check(options);
    train(options);
  });
}
