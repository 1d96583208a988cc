// The transformer of 11_imdb_transformer, data and model parallel at once, as IDRIS's course has
// it: each replica is divided among --parts ranks, and its batches go through them in --chunks.
//
//     unisono run -n 4 imdb_hybrid --data FOLDER --parts 2 --chunks 4
//     unisono run -n 2 imdb_hybrid --generated --nlayers 4 --schedule zb_h1 --checkpoint always
//     unisono run -n 2 imdb_hybrid --generated --chunks 4 --layer-times layers.csv --svg step.svg
//
// grid.py, beside it, compares all layouts.
#include <chrono>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>

#include "unisono/base/error_text.h"
#include "unisono/checkpoint/save.h"
#include "unisono/comm/process_group.h"
#include "unisono/data/pad_to_longest.h"
#include "unisono/data/samplers/length_bucketed_sampler.h"
#include "unisono/torch/checkpoint/tensor_state.h"
#include "unisono/torch/optim/adamw.h"
#include "unisono/torch/optim/lr_scheduler.h"
#include "unisono/torch/optim/schedule.h"
#include "unisono/torch/parallel/mesh/mesh.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"

#include "../command_line.h"
#include "accuracy.h"
#include "hybrid_options.h"
#include "layers.h"
#include "measure.h"
#include "printing.h"
#include "reviews.h"
#include "tensors.h"
#include "transformer.h"
#include "worth.h"

namespace {

using unisono::parallel::Mesh;
using unisono::parallel::Pipeline;

void train(const imdb::HybridOptions& options,
           const Mesh& mesh,
           Pipeline& model,
           const imdb::Reviews& reviews) {
  const bool speaks = mesh.world()->rank() == 0;
  if (speaks) {
    imdb::print_start(
        options,
        reviews,
        std::to_string(mesh.size("data")) + " x " + std::to_string(mesh.size("pipe")) + " ranks");
  }
  unisono::LengthBucketedSampler sampler(
      reviews.train->lengths(),
      *mesh.group("data"),
      {.batch_size = options.batch_size, .seed = options.seed, .drop_last = true});
  imdb::Loader train_loader(reviews.train, unisono::PadToLongest(), {.num_workers = 1});
  imdb::Loader test_loader(
      reviews.test, unisono::PadToLongest(), {.batch_size = 100, .num_workers = 1});
  unisono::optim::AdamW optimizer(model.parameters(), unisono::optim::AdamWOptions(options.lr));
  unisono::optim::LrScheduler scheduler(
      optimizer, unisono::optim::one_cycle_lr(options.lr, options.epochs * sampler.num_batches()));
  if (options.loads_model) {
    const double share = imdb::accuracy(mesh, model, test_loader, reviews.test->size());
    if (speaks) {
      std::printf("loaded %s: test accuracy %.2f%%\n", options.model_path.c_str(), 100 * share);
    }
  }
  const auto start = std::chrono::steady_clock::now();
  imdb::Batch batch;
  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    sampler.set_epoch(epoch);
    train_loader.start(sampler);
    model.train();
    double loss_sum = 0;
    while (const std::optional<unisono::PaddedBatch> padded = train_loader.next()) {
      batch = imdb::as_tensors(*padded);
      optimizer.zero_grad();
      loss_sum += model.train_step(batch.tokens, batch.labels, imdb::loss_of).item<double>();
      optimizer.step();
      scheduler.step();
    }
    const double loss = loss_sum / static_cast<double>(sampler.num_batches());
    const double share = imdb::accuracy(mesh, model, test_loader, reviews.test->size());
    if (speaks) {
      imdb::print_epoch(options, {.number = epoch, .loss = loss, .accuracy = share}, start);
    }
  }
  const std::string worth =
      imdb::is_pipeline_worth_it(options, model, *mesh.group("pipe"), reviews.ntokens, batch);
  if (speaks) {
    std::printf("%s", worth.c_str());
  }
}

void run(const imdb::HybridOptions& options) {
  unisono::parallel::PipelineOptions wanted = imdb::pipeline_options(options);
  const auto group = unisono::init_process_group();
  const Mesh mesh = imdb::make_mesh(group, options.parts);
  const imdb::Reviews reviews = imdb::load_reviews(options);
  std::optional<imdb::MeasuredLayers> layers;
  if (!options.layer_times.empty()) {
    layers = imdb::measure_layers(options, mesh, reviews.ntokens);
  }
  wanted.data_group = mesh.group("data");
  // Each rank lets go of the layers that others have.
  Pipeline model(mesh.group("pipe"), imdb::make_net(options, reviews.ntokens), wanted);
  if (options.loads_model) {
    model.load_state(unisono::load_state(*group, options.model_path));
  }
  if (options.steps > 0) {
    imdb::measure(options, mesh, model, reviews.ntokens);
  } else {
    train(options, mesh, model, reviews);
  }
  if (!options.model_path.empty() && mesh.coordinate("data") == 0) {
    // Each part of the first replica is a file; any number of parts reads them.
    const auto parts = unisono::parts_to_save(*mesh.group("pipe"), {}, model.state());
    unisono::checkpoint::save_checkpoint(
        *mesh.group("pipe"), options.model_path, model.step(), parts.parts, {}, parts.common);
  }
  if (!options.svg.empty()) {
    imdb::draw(options.svg, mesh, model);
  }
  if (layers) {
    const std::string text = imdb::compare_with_plan(*layers, model, *mesh.group("pipe"));
    std::printf("%s", group->rank() == 0 ? text.c_str() : "");
  }
  group->barrier();
  unisono::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  imdb::HybridOptions options;
  CLI::App app("Trains a transformer in parts, on as many replicas as there are ranks for");
  imdb::add_hybrid_options(app, options);
  examples::parse_or_exit(app, argc, argv);
  try {
    run(options);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "imdb_hybrid: %s\n", unisono::error_text(error).c_str());
    return 1;
  }
}
