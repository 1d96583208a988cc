// The transformer of main.cpp, parallel in three dimensions: each replica trains on other reviews
// (data), --parts ranks have different layers (pipeline), and --tensor ranks have different heads
// and features of the same layers (tensor).
//
//     unisono run -n 8 imdb_hybrid --data FOLDER --parts 2 --tensor 2 --chunks 4
//     unisono run -n 2 imdb_hybrid --generated --nlayers 4 --schedule zb_h1 --chunks 4
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <unisono/datasets.h>
#include <unisono/torch.h>

#include "../command_line.h"
#include "../training.h"
#include "layers.h"
#include "options.h"
#include "reviews.h"
#include "transformer.h"

namespace {

using unisono::parallel::Mesh;
using unisono::parallel::Pipeline;

struct HybridOptions : imdb::Options {
  int parts = 2;
  int tensor = 1;
  std::string schedule = "1f1b";
};

void train(const HybridOptions& options,
           const Mesh& mesh,
           Pipeline& model,
           const imdb::Reviews& reviews) {
  unisono::ProcessGroup& replicas = *mesh.group("data");
  unisono::LengthBucketedSampler sampler(
      reviews.train->lengths(),
      replicas,
      {.batch_size = options.batch_size, .seed = options.seed, .drop_last = true});
  imdb::Loader loader(reviews.train, unisono::datasets::PadToLongest(), {.num_workers = 1});
  imdb::Loader test_loader(reviews.test, unisono::datasets::PadToLongest(), {.batch_size = 100});
  unisono::optim::AdamW optimizer(model.parameters(), unisono::optim::AdamWOptions(options.lr));
  unisono::optim::LrScheduler scheduler(
      optimizer, unisono::optim::one_cycle_lr(options.lr, options.epochs * sampler.num_batches()));
  const auto start = std::chrono::steady_clock::now();
  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    sampler.set_epoch(epoch);
    loader.start(sampler);
    model.train();
    double loss = 0;
    while (const std::optional<unisono::datasets::PaddedBatch> padded = loader.next()) {
      const unisono::BatchTensors batch = examples::as_tensors(*padded);
      optimizer.zero_grad();
      loss += model.train_step(batch.samples, batch.labels, imdb::loss_of).item<double>() /
              static_cast<double>(sampler.num_batches());
      optimizer.step();
      scheduler.step();
    }
    model.eval();
    test_loader.start(unisono::EvaluationSampler(reviews.test->size(), replicas));
    const double accuracy =
        examples::test_accuracy(*mesh.world(), test_loader, [&](const at::Tensor& tokens) {
          return model.forward(tokens);
        });
    if (mesh.world()->rank() == 0) {
      imdb::print_epoch(options, {.number = epoch, .loss = loss, .accuracy = accuracy}, start);
    }
  }
}

void run(const HybridOptions& options) {
  const auto world = unisono::init_process_group();
  const int n_replicas = world->world_size() / (options.parts * options.tensor);
  const Mesh mesh(world,
                  {{"data", n_replicas}, {"pipe", options.parts}, {"tensor", options.tensor}});
  const imdb::Reviews reviews = imdb::load_reviews(options);
  auto net = imdb::make_divided_net(options, reviews.ntokens, mesh.group("tensor"));
  Pipeline model(mesh.group("pipe"),
                 net,
                 {.schedule = options.schedule,
                  .chunks = options.chunks,
                  .data_group = mesh.group("data"),
                  .seed = static_cast<std::uint64_t>(options.seed)});
  const auto tensors = imdb::own_tensors(net, model);
  net = nullptr;  // Frees the layers of other ranks.
  if (world->rank() == 0) {
    imdb::print_start(options,
                      reviews,
                      std::to_string(n_replicas) + " x " + std::to_string(options.parts) + " x " +
                          std::to_string(options.tensor) + " ranks");
  }
  if (options.loads_model) {
    imdb::load_tensors(*world, options.model_path, tensors, model);
  }
  train(options, mesh, model, reviews);
  if (!options.model_path.empty()) {
    imdb::save_tensors(mesh, options.model_path, tensors, model.step());
  }
  unisono::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  HybridOptions options;
  CLI::App app("Trains a transformer in three dimensions: unisono run -n 4 imdb_hybrid --tensor 2");
  imdb::add_options(app, options);
  examples::add_positive(app, "--parts", options.parts, "Ranks among which the layers are divided");
  examples::add_positive(
      app, "--tensor", options.tensor, "Ranks among which each layer is divided");
  app.add_option("--schedule", options.schedule, "A schedule of `unisono plan pipeline`")
      ->capture_default_str();
  examples::parse_or_exit(app, argc, argv);
  return examples::exit_code_of("imdb_hybrid", [&] {
    imdb::check(options);
    run(options);
  });
}
